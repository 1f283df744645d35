"""Joint training with layer = linear: the query encoder learns against fixed passages, the graph's label mean follows.

Passage vectors stay as they are stored, so a step encodes questions alone (ADORE, Zhan et al. 2021). After every epoch
the graph's questions are encoded again, and dev is measured with the label means of their new vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import QUERY
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.training.encoder.dual_towers import Start, make_towers, save_towers
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.fixed_passages import FixedPassagesTask
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower
from gnnretrieval.training.gnn.dev import choose_scale
from gnnretrieval.training.gnn.held_out import HeldOut
from gnnretrieval.training.gnn.joint import require_encoder
from gnnretrieval.training.gnn.ladder import MEANS, Judged, message_graph, rows_of
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks

_OF_ALL = "RR@10"  # mean over the weights of the label mean: it chooses the epoch


class JointMessages(NamedTuple):
    """Result of joint training with layer = linear.

    Attributes:
        messages: The label mean's weight; no messages if the gain is not significant.
        epoch: Epoch that is kept; 0: the query encoder did not change.
        dev: Mean RR@10 on dev of what is kept.
        dual_encoder: Mean RR@10 of the dual-encoder before training.
        gain: Gain over it, of the kind of question that gains least.
        p: Its one-sided p-value, times the number of settings tried.
        tried: That number: epochs times weights.
        evidence: Significance level.
        encoder: Settings that open the saved encoders; None: they did not change.
    """

    messages: Messages
    epoch: int
    dev: float
    dual_encoder: float
    gain: float
    p: float
    tried: int
    evidence: float
    encoder: EncoderSettings | None

    @property
    def believed(self) -> bool:
        """Whether the gain is significant."""
        return self.gain > 0 and self.p <= self.evidence

    @property
    def kept(self) -> str:
        """What is kept, in words."""
        parts = ["query encoder trained jointly"] if self.encoder is not None else []
        parts += [f"label mean {self.messages.mean:g}"] if self.messages.mean else []
        return ", ".join(parts) or "the dual-encoder"

    def described(self) -> dict[str, Any]:
        """The entry ``dev`` of a model's metadata."""
        return {
            "dual_encoder": {"RR@10": self.dual_encoder},
            "cross_validated": 0,
            "best": {"gain": self.gain, "p": self.p, "tried": self.tried, "epoch": self.epoch},
            "believed": self.believed,
            "evidence": self.evidence,
            "chosen": {"RR@10": self.dev},
            "kept": self.kept,
        }

    def lines(self) -> list[str]:
        """The choice as lines for the user."""
        best = f"p = {self.p:.2g}, the best of {self.tried} settings"
        if self.believed:
            figures = f"dev RR@10 {100 * self.dev:.1f}, dual-encoder {100 * self.dual_encoder:.1f}"
            return [f"kept: {self.kept}, epoch {self.epoch}; {figures} ({best})"]
        return [
            f"the gain, {100 * self.gain:+.1f} RR@10, may be chance ({best}; evidence = {self.evidence:g}): the "
            "embeddings stay the dual-encoder's"
        ]


class LabelMeanDev:
    """RR@10 on dev by the weight of the label mean, with all questions encoded by the tower in training."""

    def __init__(self, store: Graph, held_out: HeldOut, tower: TextTower, token_budget: int) -> None:
        self.store, self.held_out, self.tower, self.token_budget = store, held_out, tower, token_budget
        self.asked = np.unique(store.labels[:, 0])
        with store.texts() as texts:
            self._items = _items(tower, texts.texts_of_queries(self.asked.tolist()))
        self._dev_items = _items(tower, held_out.texts)

    def values(self) -> dict[float, NDArray[np.float64]]:
        """RR@10 of each dev question ``(q,)`` by weight."""
        store, held_out = self.store, self.held_out
        self.tower.module.eval()
        queries = np.array(store.query_features)
        queries[self.asked] = self._encoded(self._items)
        graph = message_graph(store.with_features(store.passage_features, queries), held_out.hidden)
        judged = Judged.of(graph, {}, self._encoded(self._dev_items), held_out.relevant)
        return {mean: judged.measure(Messages(mean=mean)) for mean in MEANS}

    def measure(self) -> dict[str, float]:
        """Means over the questions; the first one, over all weights too, chooses the epoch."""
        means = {f"RR@10, label mean {mean:g}": float(values.mean()) for mean, values in self.values().items()}
        return {_OF_ALL: float(np.mean([*means.values()])), **means}

    def _encoded(self, items: list[Item]) -> NDArray[np.float16]:
        vectors: NDArray[np.float16] = encoded(self.tower, items, self.token_budget).numpy().astype(np.float16)
        return vectors


class QueryEncoderTraining(NamedTuple):
    """A training of the query encoder that has not begun.

    Attributes:
        start: What the encoders start from.
        task: Its batches.
        dev: Its measurements.
        loop: The loop.
    """

    start: Start
    task: FixedPassagesTask
    dev: LabelMeanDev
    loop: EncoderLoop

    @classmethod
    def of(
        cls,
        store: Graph,
        held_out: HeldOut,
        settings: TrainSettings,
        directory: Path,
        taught: NDArray[np.bool_],
        device: str = "cpu",
        ranks: Ranks = ALONE,
    ) -> QueryEncoderTraining:
        """Arguments and errors as of :func:`train_joint_messages`."""
        start, its = require_encoder(store), settings.dual_encoder
        towers = make_towers(
            start, shared=False, device=torch.device(device), seed=settings.seed, dropout=its.encoder_dropout
        )
        dev = LabelMeanDev(store, held_out, towers[QUERY], its.token_budget)
        examples, texts, ids = _examples(store, held_out, taught)
        of_loop = DualEncoderTrainSettings(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup=settings.warmup,
            gradient_clip=settings.gradient_clip,
            dropout=its.encoder_dropout,
            precision=its.precision,
            token_budget=its.token_budget,
            patience=settings.patience or settings.epochs,
            seed=settings.seed,
            fixed_passages=True,
        )
        task = FixedPassagesTask(
            examples, texts, towers, start.similarity, of_loop, dev, ids, np.asarray(store.passage_features)
        )
        loop = EncoderLoop({QUERY: towers[QUERY]}, task, of_loop, directory, torch.device(device), ranks)
        return cls(start, task, dev, loop)


def train_joint_messages(
    store: Graph,
    held_out: HeldOut,
    settings: TrainSettings,
    directory: Path,
    taught: NDArray[np.bool_],
    device: str = "cpu",
    ranks: Ranks = ALONE,
) -> JointMessages:
    """Train the query encoder of a graph's features, and choose the label mean's weight on the held-out questions.

    The weight is the best on average over the epochs, and the epoch the best on average over the weights, so that
    neither follows the noise of one measurement.

    Args:
        store: The graph.
        held_out: The dev questions.
        settings: Settings of training.
        directory: Where log, checkpoint and encoders go.
        taught: ``(n,)`` bool, True for queries to train on.
        device: Where to compute.
        ranks: The processes that train together.

    Raises:
        GnnRetrievalError: No query is left to train on, or as :func:`gnnretrieval.training.gnn.joint.require_encoder`.
    """
    made = QueryEncoderTraining.of(store, held_out, settings, directory, taught, device, ranks)
    dev, training = made.dev, made.loop
    graph = message_graph(store, held_out.hidden)
    base = Judged.of(graph, {}, held_out.queries, held_out.relevant).measure(Messages())
    best = training.run()
    measured = [record["dev"] for record in training.progress.history if record["epoch"]] or [best["dev"]]
    mean = max(MEANS, key=lambda one: float(np.mean([record[f"RR@10, label mean {one:g}"] for record in measured])))
    values = dev.values()[mean]
    parts = np.zeros(len(base), np.int64) if held_out.is_split else held_out.parts[rows_of(len(held_out.parts))]
    choice = choose_scale({1.0: values}, base, parts)
    tried = len(training.progress.history) * len(MEANS)
    found = JointMessages(
        messages=Messages(mean=mean),
        epoch=int(best["epoch"]),
        dev=float(values.mean()),
        dual_encoder=float(base.mean()),
        gain=choice.gain,
        p=min(1.0, tried * choice.p),
        tried=tried,
        evidence=settings.evidence,
        encoder=None,
    )
    if not found.believed:
        return found._replace(messages=Messages(), dev=found.dual_encoder)
    if found.epoch and ranks.first:
        learned = (example.query for example in made.task.examples)
        found = found._replace(encoder=save_towers(made.task.towers, made.start, directory, learned))
    return found


def _examples(store: Graph, held_out: HeldOut, taught: NDArray[np.bool_]) -> tuple[list[Example], Texts, list[str]]:
    """Examples of the labels to train on, their texts with those of all passages, and the passages' ids."""
    labels = store.labels[taught[store.labels[:, 0]]]
    if held_out.hidden is not None:
        labels = labels[~held_out.hidden[labels[:, 0]]]
    if not len(labels):
        raise GnnRetrievalError("there is nothing to train on: no query that may be learned from has a label.")
    with store.texts() as texts:
        queries, passages = texts.query_ids(), texts.passage_ids()
        positives: dict[int, list[Candidate]] = {}
        for query, passage in labels.tolist():
            positives.setdefault(query, []).append(Candidate(passages[passage], "label"))
        rows = sorted(positives)
        asked = dict(zip((queries[row] for row in rows), texts.texts_of_queries(rows), strict=True))
        found = {passage.id: passage.full_text for passage in texts.passages()}
    return [Example(queries[row], tuple(positives[row]), ()) for row in rows], Texts(asked, found), passages


def _items(tower: TextTower, texts: list[str]) -> list[Item]:
    return [Item(QUERY, tuple(ids)) for ids in tower.tokens(texts)] if texts else []
