"""Simulated nights of a search: users click what it shows, and the search learns from it; for benchmarks/feedback.py.

Everything is in memory, over vectors that were encoded once, but by the functions that ``gnnretrieval update`` calls:
judging clicks, training, warm starts and the gate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import open_features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.feedback import FeedbackSettings, SimulationSettings
from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.clicked_questions import ClickedQuestions, ShownPassage
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.importing import NoLabelsError, judge_impressions, with_relevant
from gnnretrieval.feedback.judging import Judgement
from gnnretrieval.feedback.simulation import draw_clicks, show_lists
from gnnretrieval.feedback.time_splits import DEV, TEST, TRAIN
from gnnretrieval.graph.edges.labels import with_labels
from gnnretrieval.nightly.gate import RanksOfModel, feedback_slices, judge_gain, popularity_slices
from gnnretrieval.nn.label_messages import MessageGraph, Messages, message_vectors
from gnnretrieval.recipes.update_settings import UpdateSettings
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import HeldOut
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import MEANS, head_steps, reciprocal_ranks
from gnnretrieval.training.gnn.messages import TrainedMessages, train_over
from gnnretrieval.training.gnn.warm_start import continue_messages, grew_enough

K, DEPTH = 5, 15  # edges of a question; passages that the search ranks, of which ten are shown
TEST_SHARE = 0.2  # of the lists, the newest
_DAY = 86400.0
_LEAST_DEV = 10  # dev questions with a label, before which nothing is trained


class World(NamedTuple):
    """A set: its vectors, and the truth.

    Attributes:
        passages: ``(m, d)``.
        queries: ``(n, d)``.
        relevant: Rows of the relevant passages of each query.
        asked: Rows of the queries that users ask.
        truth: Rows of the queries that nobody asks, on which versions are compared.
        neighbors: ``(n, K)`` the dual-encoder's best passages.
        scores: ``(n, K)`` their scores.
        similarity: How vectors are compared.
        lexical: BM25's best passages of each query, with which users see what is served joined; else empty.
    """

    passages: NDArray[np.float32]
    queries: NDArray[np.float32]
    relevant: list[list[int]]
    asked: NDArray[np.int64]
    truth: NDArray[np.int64]
    neighbors: NDArray[np.int64]
    scores: NDArray[np.float32]
    similarity: Any
    lexical: list[list[int]]

    @classmethod
    def of(cls, dataset: Dataset, features: Path | None, dimensions: int, joined: bool) -> World:
        """The world of a dataset: users ask the questions of train and dev.

        Args:
            dataset: The set.
            features: Its features; None: latent semantic analysis of TF-IDF, which takes seconds instead of hours.
            dimensions: Width that the vectors are projected to, by their first singular vectors.
            joined: Whether users see lists that are joined with BM25's.
        """
        row = {id_: number for number, id_ in enumerate(dataset.passage_ids)}
        query_row = {id_: number for number, id_ in enumerate(dataset.query_ids)}
        relevant: list[list[int]] = [[] for _ in dataset.query_ids]
        rows: dict[str, list[int]] = {}
        for split in (TRAIN, DEV, TEST):
            for query, grades in dataset.split(split).items():
                relevant[query_row[query]] = [row[passage] for passage, value in grades.items() if value > 0]
                if relevant[query_row[query]]:
                    rows.setdefault(split, []).append(query_row[query])
        similarity = Similarity(normalize=True, scale=20.0)
        if features is None:
            projected = _analysed(dataset, dimensions)
        else:
            opened = open_features(features)
            opened.require_of(dataset)
            similarity = opened.similarity
            whole = [similarity.prepare_array(np.asarray(array)) for array in (opened.passages, opened.queries)]
            axes = np.linalg.svd(whole[0], full_matrices=False)[2][:dimensions].T
            projected = whole[0] @ axes, whole[1] @ axes
        passages, queries = (
            similarity.prepare_array(np.ascontiguousarray(array, dtype=np.float32)) for array in projected
        )
        neighbors, scores = exact_top_k(queries, passages, K, similarity)
        lexical: list[list[int]] = []
        if joined:
            bm25 = BM25([passage.full_text for passage in dataset.passages()])
            found_by_words = bm25.top_k_of([query.text for query in dataset.queries()], DEPTH)
            lexical = [best.tolist() for best, _ in found_by_words]
        asked = np.array(sorted({*rows[TRAIN], *rows[DEV]} - {*rows[TEST]}))
        return cls(passages, queries, relevant, asked, np.array(rows[TEST]), neighbors, scores, similarity, lexical)

    def on_truth(self, vectors: Tensor) -> NDArray[np.float64]:
        """RR@10 of each query of the truth."""
        relevant = [self.relevant[row] for row in self.truth.tolist()]
        return reciprocal_ranks(vectors, torch.from_numpy(self.queries[self.truth]), relevant)

    def graph(self, labels: Mapping[int, Sequence[int]]) -> MessageGraph:
        """The graph of labelled queries, by query row."""
        queries = np.array([*labels], dtype=np.int64)
        pairs = [(place, passage) for place, relevant in enumerate(labels.values()) for passage in sorted(relevant)]
        labelled = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        vectors = self.queries[queries]
        rows, scores = self.neighbors[queries], self.scores[queries]
        joined = with_labels(rows, scores, labelled, vectors, self.passages, self.similarity).rows
        return MessageGraph(
            torch.from_numpy(self.passages),
            torch.from_numpy(vectors),
            torch.from_numpy(joined),
            torch.from_numpy(labelled),
            torch.ones(len(queries), dtype=torch.bool),
            self.similarity.normalize,
            self.similarity.scale,
        )


def joined(*rankings: Sequence[int]) -> list[int]:
    """Rankings joined by reciprocal ranks (RRF), best first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, 1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda passage: (-scores[passage], passage))[:DEPTH]


def _analysed(dataset: Dataset, dimensions: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Vectors of passages and queries by latent semantic analysis."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, min_df=2, stop_words="english")
    texts = words.fit_transform([passage.full_text for passage in dataset.passages()])
    axes = TruncatedSVD(dimensions, random_state=0)
    passages = axes.fit_transform(texts)
    queries = axes.transform(words.transform([query.text for query in dataset.queries()]))
    return passages, queries


class Served(NamedTuple):
    """A model and its vectors, and the labels that it was trained on."""

    trained: TrainedMessages
    vectors: Tensor
    labels: dict[int, tuple[int, ...]]


class Labels(NamedTuple):
    """Labels by query row and split, how often each question was asked in it, and the gate's questions.

    Attributes:
        by_split: Rows of the relevant passages by query row and split.
        impressions: Number of impressions likewise.
        clicked: How the questions of a split count, in the order of ``by_split``.
    """

    by_split: dict[str, dict[int, tuple[int, ...]]]
    impressions: dict[str, dict[int, int]]
    clicked: dict[str, ClickedQuestions]


def _relevant(judgements: Iterable[Judgement]) -> tuple[int, ...]:
    """Rows of the relevant passages, ascending."""
    return tuple(sorted(int(judgement.passage) for judgement in judgements if judgement.verdict == "relevant"))


def _shown(judgements: Iterable[Judgement]) -> list[ShownPassage]:
    return [ShownPassage(int(each.passage), each.examined, each.verdict == "relevant") for each in judgements]


class Month:
    """Simulated nights over a world.

    Args:
        world: The set.
        users: What users do; ``impressions`` are those of a night.
        settings: Of the update.
        nights: How many there will be, over which new questions turn up.
        backlog: Share of the questions that are known on the first day.
        heads: Numbers of steps of a head that training tries, the smallest first.
    """

    def __init__(
        self,
        world: World,
        users: SimulationSettings,
        settings: UpdateSettings,
        nights: int,
        backlog: float = 0.1,
        heads: int = 3,
    ) -> None:
        self.heads = heads
        self.world, self.users, self.settings = world, users, settings
        self.rng = np.random.default_rng(users.seed)
        order = self.rng.permutation(world.asked)
        self._births = np.where(np.arange(len(order)) < backlog * len(order), 0.0, 1.0)
        self._births *= np.linspace(-backlog * nights, nights, len(order))
        self._order = order
        weight = 1.0 / np.arange(1, len(order) + 1) ** users.popularity
        self._weight = self.rng.permutation(weight)
        self.impressions: list[Impression] = []
        identity = TrainedMessages(None, Messages())
        self.served = Served(identity, torch.from_numpy(world.passages), {})
        self.frozen = float(world.on_truth(self.served.vectors).mean())
        self._of_served = world.on_truth(self.served.vectors)
        self._labels_then = 0

    def night(self, day: int) -> dict[str, Any]:
        """One day of clicks, and the update at its end."""
        self._clicks(day)
        begun = time.perf_counter()
        labels = self.labels()
        figures: dict[str, Any] = {"night": day + 1, "training": "none", "promoted": False}
        if labels is not None:
            figures |= self._update(labels)
        figures["seconds"] = time.perf_counter() - begun
        figures["truth"] = float(self._of_served.mean())
        return figures

    def _clicks(self, day: int) -> None:
        """Questions of the day, shown as the served version ranks, and clicks on them."""
        born = np.flatnonzero(self._births < day + 1)
        weight = self._weight[born]
        drawn = born[self.rng.choice(len(born), self.users.impressions, p=weight / weight.sum())]
        times = np.sort(_DAY * (day + self.rng.random(len(drawn))))
        # A question is not asked before it is born.
        times = np.maximum(times, _DAY * self._births[drawn])
        drawn, times = drawn[np.argsort(times, kind="stable")], np.sort(times)
        rows = self._order[drawn]
        distinct, place = np.unique(rows, return_inverse=True)
        scores = torch.from_numpy(self.world.queries[distinct]) @ self.served.vectors.T
        ranked = scores.topk(DEPTH, dim=1).indices.tolist()
        if self.world.lexical:
            ranked = [
                joined(ranking, self.world.lexical[row]) for ranking, row in zip(ranked, distinct.tolist(), strict=True)
            ]
        best = [[str(passage) for passage in ranking] for ranking in ranked]
        answers = [{str(passage) for passage in self.world.relevant[row]} for row in rows.tolist()]
        lists = show_lists(times, rows, [best[number] for number in place.tolist()], answers, self.users, self.rng)
        clicked, *_ = draw_clicks(lists, self.users, self.rng)
        for number, question in enumerate(rows.tolist()):
            shown = [
                Shown(passage, position, bool(clicked[number, position - 1]), None, 0)
                for position, passage in enumerate(lists.passages[number], 1)
            ]
            self.impressions.append(Impression(str(question), float(times[number]), tuple(sorted(shown))))

    def labels(self) -> Labels | None:
        """What the clicks so far say; None: too little."""
        settings = FeedbackSettings(test_share=TEST_SHARE)
        try:
            feedback = judge_impressions(self.impressions, settings)
        except NoLabelsError:
            return None
        judged = {name: with_relevant(judgements) for name, judgements in feedback.judgements.items()}
        by_split = {
            name: {int(question): _relevant(judgements) for question, judgements in of_split.items()}
            for name, of_split in judged.items()
        }
        if not by_split.get(TRAIN) or len(by_split.get(DEV, ())) < _LEAST_DEV:
            return None
        impressions: dict[str, dict[int, int]] = {
            name: Counter(int(impression.question) for impression in part)
            for name, part in feedback.split.by_name.items()
        }
        clicked = {
            name: ClickedQuestions.of([_shown(group) for group in of_split.values()], feedback.rates, settings)
            for name, of_split in judged.items()
        }
        return Labels(by_split, impressions, clicked)

    def dev(self, labels: Labels) -> HeldOut:
        """The dev questions."""
        train, dev = labels.by_split[TRAIN], labels.by_split[DEV]
        hidden = np.array([row in dev for row in train])
        return HeldOut(
            DEV,
            [],
            self.world.queries[np.array([*dev])],
            [],
            [[*passages] for passages in dev.values()],
            hidden if hidden.any() else None,
            np.zeros(len(dev), dtype=np.int64),
            labels.clicked[DEV],
            labels.clicked[TRAIN],
        )

    def _update(self, labels: Labels) -> dict[str, Any]:
        train, test = labels.by_split[TRAIN], labels.by_split.get(TEST, {})
        if len(test) < self.settings.least:  # the gate would refuse whatever is trained
            return {}
        graph = self.world.graph(train)
        count = len(graph.labels)
        is_full = grew_enough(count, self._labels_then, self.served.trained, self.settings.growth)
        if not is_full and self.served.trained.messages == Messages():
            return {}
        if is_full:
            self._labels_then = count
            trained = train_whole(graph, self.dev(labels), self.heads).trained
        else:
            fresh = np.array([self.served.labels.get(row) != relevant for row, relevant in train.items()])
            trained = continue_messages(graph, self.served.trained, fresh, replay=self.settings.replay)
        vectors = message_vectors(graph, trained.heads, trained.messages)
        newest = labels.clicked[TEST]
        queries = torch.from_numpy(self.world.queries[np.array([*test], dtype=np.int64)])
        candidate, served = (RanksOfModel.of(newest, version, queries) for version in (vectors, self.served.vectors))
        slices = popularity_slices([labels.impressions[TEST][row] for row in test])
        slices |= feedback_slices(newest.relevant, (graph.label_counts > 0).numpy())
        gate = judge_gain(candidate, served, slices, self.settings, newest.weights)
        whole = gate.whole.gain if gate.whole is not None else 0.0
        on_truth = self.world.on_truth(vectors)
        figures = {
            "training": "full" if is_full else "warm",
            "labels": count,
            "right_labels": sum(
                passage in self.world.relevant[row] for row, relevant in train.items() for passage in relevant
            ),
            "held_out": gate.questions,
            "gain": gate.gain,
            "gain_among_all": whole,
            "p": gate.p,
            "promoted": gate.promotes,
            "true_gain": float((on_truth - self._of_served).mean()),
            "true_error": float((on_truth - self._of_served).std(ddof=1) / len(on_truth) ** 0.5),
        }
        if gate.promotes:
            self.served, self._of_served = Served(trained, vectors, dict(train)), on_truth
        return figures


def train_whole(graph: MessageGraph, dev: HeldOut, most: int) -> Any:
    """Training from scratch; the gate has the evidence."""
    everyone = torch.ones(len(graph.queries), dtype=torch.bool)
    return train_over(graph, dev, TrainSettings(evidence=1), everyone, most=most)


def without_gate(month: Month) -> dict[str, float]:
    """RR@10 on the truth of what could be done with the same clicks every night instead, without a gate."""
    labels, world = month.labels(), month.world
    if labels is None:
        return {}
    graph, dev = world.graph(labels.by_split[TRAIN]), month.dev(labels)
    judged = Judged.of(graph, {}, dev.queries, dev.relevant, dev.clicked)

    def best(choices: Sequence[Tensor]) -> float:
        """On the truth, of the choice that is best on dev."""
        chosen = max(choices, key=lambda vectors: float(judged.measure_vectors(vectors).mean()))
        return float(world.on_truth(chosen).mean())

    everyone = torch.ones(len(graph.queries), dtype=torch.bool)
    heads = [(steps, train_heads(graph, steps)) for steps in head_steps(graph, everyone)]
    begun = time.perf_counter()
    trained = train_whole(graph, dev, month.heads).trained
    seconds = time.perf_counter() - begun
    return {
        "label mean": best([message_vectors(graph, None, Messages(mean=mean)) for mean in MEANS]),
        "linear head": best([message_vectors(graph, head, Messages(steps=steps)) for steps, head in heads]),
        "from scratch": float(world.on_truth(message_vectors(graph, trained.heads, trained.messages)).mean()),
        "from scratch, seconds": seconds,
    }
