"""Joint training with layer = linear: after the ladder, the query encoder learns, and its head goes on learning.

Stored passage vectors stay, so a step encodes questions alone (ADORE, Zhan et al. 2021). After every epoch the graph's
questions are encoded again, and dev is measured with the messages of their new vectors. The result is one more rung of
the ladder: without a gain over the frozen encoder's result, the latter is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.trained import QUERY
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, Sides
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.training.encoder.dual_towers import Start, make_towers, save_towers
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.fixed_passages import FixedPassagesTask, TrainedHead
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower
from gnnretrieval.training.gnn.corpus_part import mean_length
from gnnretrieval.training.gnn.dev import choose_scale
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import HeldOut
from gnnretrieval.training.gnn.joint import require_encoder
from gnnretrieval.training.gnn.judged import Beside, Judged, questions_beside, rows_of
from gnnretrieval.training.gnn.ladder import MEANS, gains_in_one, harms, mean_and_error, message_graph
from gnnretrieval.training.gnn.message_memory import require_fit
from gnnretrieval.training.gnn.messages import (
    MessagesTraining,
    TrainedMessages,
    in_words,
    is_few,
    or_none,
    train_messages,
)
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.ranks import ALONE, Ranks

HEAD_RATE = 4.0  # learning rate of the head over the query encoder's: 2e-4 by default
JOINT_SIDES: tuple[Sides, ...] = ("both",)  # questions need no separate head: their encoder is trained
_OF_ALL = "RR@10"  # mean over the weights of the label mean: it chooses the epoch


class JointMessages(NamedTuple):
    """Result of joint training with layer = linear.

    Attributes:
        ladder: The ladder's choice with the frozen encoder.
        trained: What is kept: of joint training, or the ladder's.
        epoch: Best epoch; 0: the query encoder did not change.
        dev: Mean RR@10 on dev of what is kept.
        gain: Mean gain in RR@10 over the ladder's choice.
        error: Its standard error.
        rank_gain: Mean gain in log rank.
        rank_error: Its standard error.
        harms: Whether one kind of held-out question loses more than a standard error.
        p: One-sided p-value of the gain over the dual-encoder, times ``tried``.
        tried: Number of settings tried: epochs times weights, and the ladder's.
        beside: Number of training questions that were left out of training to be judged beside few dev questions.
        encoder: Settings that open the saved encoders; None: they did not change.
    """

    ladder: MessagesTraining
    trained: TrainedMessages
    epoch: int
    dev: float
    gain: float
    error: float
    rank_gain: float
    rank_error: float
    harms: bool
    p: float
    tried: int
    beside: int
    encoder: EncoderSettings | None = None

    @property
    def better(self) -> bool:
        """Whether it is kept: better than the ladder's choice as a rung must be, with a gain that is significant."""
        gains_one = gains_in_one((self.gain, self.error), (self.rank_gain, self.rank_error))
        gains = self.epoch > 0 and gains_one and not self.harms
        return gains and (self.ladder.is_significant or self.p <= self.ladder.evidence)

    @property
    def kept(self) -> str:
        """What is kept, in words."""
        if not self.better:
            return self.ladder.kept
        others = self.trained.messages._replace(steps=0, trained_mean=0.0, level=0.0)
        return "query encoder and head trained jointly" + (f", {in_words(others)}" if others != Messages() else "")

    def described(self) -> dict[str, Any]:
        """The entry ``dev`` of a model's metadata."""
        joint = {"gain": self.gain, "error": or_none(self.error), "p": self.p, "tried": self.tried, "epoch": self.epoch}
        by_rank = {"gain": self.rank_gain, "error": or_none(self.rank_error)}
        return {
            **self.ladder.described(),
            "joint": {**joint, "log_rank": by_rank, "kept": self.better, "beside": self.beside},
            "believed": self.better or self.ladder.is_significant,
            "chosen": {"RR@10": self.dev},
            "kept": self.kept,
        }

    def lines(self) -> list[str]:
        """The choice as lines for the user."""
        errors = [" on one question", ""]
        if math.isfinite(self.error):
            errors = [f" ± {self.rank_error:.2f}", f" ± {100 * self.error:.1f}"]
        gained = f"log2 rank {-self.rank_gain:+.2f}{errors[0]}, RR@10 {100 * self.gain:+.1f}{errors[1]}"
        said = f"{gained}, over what the frozen encoder reached"
        if not self.better:
            return [f"query encoder trained jointly: {said}, which may be chance: left out"]
        figures = f"dev RR@10 {100 * self.dev:.1f}, dual-encoder {100 * self.ladder.dual_encoder:.1f}"
        return [f"query encoder trained jointly: {said}: kept", f"kept: {self.kept}; epoch {self.epoch}, {figures}"]


class Values(NamedTuple):
    """RR@10 and log rank (:func:`~gnnretrieval.training.gnn.ladder.log_ranks`) of each question ``(q,)``."""

    reciprocal: NDArray[np.float64]
    log_rank: NDArray[np.float64]

    @classmethod
    def of(cls, judged: Sequence[Judged], messages: Messages) -> Values:
        """Of all questions in turn, with some messages."""
        return cls(
            np.concatenate([part.measure(messages) for part in judged]),
            np.concatenate([part.log_ranks(messages) for part in judged]),
        )


class LabelMeanDev:
    """RR@10 on dev by the weight of the label mean, with the graph's questions encoded by the tower in training.

    Args:
        store: The graph.
        held_out: The dev questions.
        messages: The other messages.
        tower: The query encoder.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
        head: The head in training.
        beside: Training questions that are judged too (:func:`questions_beside`).
    """

    def __init__(
        self,
        store: Graph,
        held_out: HeldOut,
        messages: Messages,
        tower: TextTower,
        token_budget: int,
        head: TrainedHead,
        beside: Beside | None = None,
    ) -> None:
        self.store, self.held_out, self.tower, self.token_budget = store, held_out, tower, token_budget
        self.messages, self.head, self.beside = messages, head, beside
        # rejection and local scaling depend on the questions without a label too
        with_others = messages.rounds or messages.scaling
        self._rows = np.arange(store.num_queries) if with_others else np.unique(store.labels[:, 0])
        with store.texts() as texts:
            self._items = tower.items(QUERY, texts.texts_of_queries(self._rows.tolist()))
        self._dev_items = tower.items(QUERY, held_out.texts)

    def values(self) -> dict[float, Values]:
        """Values of each question by weight: of dev's, then of those beside them."""
        graph = self.graph()
        dev = self.held_out
        judged = [Judged.of(graph, {}, self._encoded(self._dev_items), dev.relevant, dev.clicked)]
        if self.beside is not None:
            graph = graph.without(torch.from_numpy(self.beside.hidden))
            judged.append(replace(self.beside.judged, graph=graph, queries=graph.queries[self.beside.rows]))
        settings = {mean: self.messages._replace(mean=mean) for mean in MEANS}
        heads = Heads.shared(self.head.matrix.detach().to(graph.device))
        return {
            mean: Values.of([_with_heads(part, heads, messages) for part in judged], messages)
            for mean, messages in settings.items()
        }

    def graph(self) -> MessageGraph:
        """The graph without the dev questions, with the questions that the messages depend on encoded by the tower."""
        self.tower.module.eval()
        queries = np.array(self.store.query_features)
        queries[self._rows] = self._encoded(self._items)
        view = self.store.with_features(self.store.passage_features, queries)
        return message_graph(view, self.held_out.hidden, self.tower.module.device)

    def measure(self) -> dict[str, float]:
        """Means over the questions; the first one, over all weights too, chooses the epoch."""
        means = {_of_mean(mean): float(values.reciprocal.mean()) for mean, values in self.values().items()}
        return {_OF_ALL: float(np.mean([*means.values()])), **means}

    def _encoded(self, items: list[Item]) -> NDArray[np.float16]:
        vectors: NDArray[np.float16] = encoded(self.tower, items, self.token_budget).numpy().astype(np.float16)
        return vectors


class QueryEncoderTraining(NamedTuple):
    """A training of the query encoder that has not begun.

    Attributes:
        start: What the encoders start from.
        task: Its batches.
        head: The head.
        dev: Its measurements.
        loop: The loop.
    """

    start: Start
    task: FixedPassagesTask
    head: TrainedHead
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
        messages: Messages = Messages(),  # noqa: B008 - a tuple
        beside: Beside | None = None,
        head: Tensor | None = None,
        device: str = "cpu",
        ranks: Ranks = ALONE,
    ) -> QueryEncoderTraining:
        """Arguments and errors as of :func:`train_joint_messages` and :class:`LabelMeanDev`.

        ``head`` is where the head starts, None: at the identity; ``messages.steps`` counts its steps.
        """
        start, place = require_encoder(store), as_device(device)
        dropout, token_budget = settings.dual_encoder.encoder_dropout, settings.dual_encoder.token_budget
        how: dict[str, Any] = {"seed": settings.seed, "dropout": dropout, "own_lengths": True}
        towers = make_towers(start, shared=False, device=place, **how)
        learning = TrainedHead(torch.eye(store.dimension) if head is None else head, HEAD_RATE, place, ranks.count)
        messages = messages._replace(steps=max(messages.steps, 1))  # it has a head
        dev = LabelMeanDev(store, held_out, messages, towers[QUERY], token_budget, learning, beside)
        teaching = taught.copy()
        for untaught in (held_out.hidden, None if beside is None else beside.hidden):
            if untaught is not None:
                teaching &= ~untaught
        examples, texts, ids = _examples(store, teaching)
        of_loop = DualEncoderTrainSettings(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup=settings.warmup,
            gradient_clip=settings.gradient_clip,
            dropout=dropout,
            precision=settings.precision,
            token_budget=token_budget,
            patience=settings.patience or settings.epochs,
            seed=settings.seed,
            fixed_passages=True,
        )
        vectors = np.asarray(store.passage_features)
        similarity = _as_the_ladder(start.similarity, store)
        task = FixedPassagesTask(examples, texts, towers, similarity, of_loop, dev, ids, vectors, learning)
        loop = EncoderLoop({QUERY: towers[QUERY]}, task, of_loop, directory, place, ranks, beside=[learning])
        return cls(start, task, learning, dev, loop)


def _as_the_ladder(similarity: Similarity, store: Graph) -> Similarity:
    """The similarity with the factor in the softmax that the ladder's heads are trained with, over whole vectors."""
    if similarity.normalize:
        return similarity
    lengths = mean_length(store.passage_features), mean_length(store.query_features)
    scale = similarity.scale_of_mean(*lengths) / (lengths[0] * lengths[1])
    return similarity.model_copy(update={"scale": scale})


def train_joint_messages(
    store: Graph,
    held_out: HeldOut,
    settings: TrainSettings,
    directory: Path,
    taught: NDArray[np.bool_],
    device: str = "cpu",
    ranks: Ranks = ALONE,
) -> JointMessages:
    """Climb the ladder, then train the query encoder of a graph's features, and the ladder's head with it.

    The label mean's weight is the best on average over the epochs, and the epoch the best on average over the weights,
    so that neither follows the noise of one measurement. Rejection, prior and local scaling are the ladder's. The
    result is kept if it is better than the ladder's choice as a rung must be (:func:`gains_in_one`). Where dev
    questions are few, a tenth of the training questions is judged beside them and not trained on.

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
    require_encoder(store)
    require_fit(store)
    may_teach = torch.from_numpy(taught)
    place = as_device(device)
    how: dict[str, Any] = {"sides": JOINT_SIDES, "update_sizes": (), "device": place}  # its questions change
    ladder = train_messages(store, held_out, settings, may_teach, **how)
    ladder = ladder._replace(several=None, climb_several=None)  # the query encoder learns, and their vectors with it
    if ranks.first:
        for line in ladder.lines():
            say(line)
    graph = message_graph(store, held_out.hidden, place)
    dev = Judged.of(graph, {}, held_out.queries, held_out.relevant, held_out.clicked)
    beside = None
    if held_out.is_split and is_few(held_out):
        in_graph = held_out.clicked_in_graph
        beside = questions_beside(graph, dev, settings.seed, may_teach, in_graph, held_out.may_join)
    chosen = ladder.trained.messages._replace(level=0.0)  # the encoder in training has another
    frozen = [(dev, ladder.heads if chosen.steps else None)]
    if beside is not None:
        heads = None
        if chosen.steps:  # a head that did not learn from these questions either
            inside, mean = beside.judged.graph, chosen.trained_mean
            heads = train_heads(inside, chosen.steps, mean=mean, seed=settings.seed, taught=may_teach)
        frozen.append((beside.judged, heads))
    start = frozen[-1][1]
    head = None if start is None else start.queries
    made = QueryEncoderTraining.of(store, held_out, settings, directory, taught, chosen, beside, head, device, ranks)
    best = made.loop.run()
    joint = _compared(made, best, ladder, frozen, held_out)
    if not joint.better:
        return joint._replace(trained=ladder.trained, dev=ladder.dev)
    if joint.trained.messages.scaling:
        joint = joint._replace(trained=joint.trained.with_level(made.dev.graph()))
    if ranks.first:
        learned = (example.query for example in made.task.examples)
        joint = joint._replace(encoder=save_towers(made.task.towers, made.start, directory, learned))
    return joint


def _compared(
    made: QueryEncoderTraining,
    best: dict[str, Any],
    ladder: MessagesTraining,
    frozen: list[tuple[Judged, Heads | None]],
    held_out: HeldOut,
) -> JointMessages:
    """Choose the weight of the label mean, and compare joint training with the ladder's choice, question by question.

    Args:
        made: The finished training.
        best: Record of its best epoch.
        ladder: The ladder's choice.
        frozen: The dev questions, and any beside them, with the heads of the ladder's choice that lack them.
        held_out: The dev questions.
    """
    history = made.loop.progress.history
    measured = [record["dev"] for record in history if record["epoch"]] or [best["dev"]]
    weight = max(MEANS, key=lambda mean: float(np.mean([record[_of_mean(mean)] for record in measured])))
    before, base = (
        Values.of([_with_heads(judged, heads, messages) for judged, heads in frozen], messages)
        for messages in (ladder.trained.messages._replace(level=0.0), Messages())
    )
    values = made.dev.values()[weight]
    parts = None if held_out.is_split else held_out.parts[rows_of(len(held_out.parts))]
    gain, error = mean_and_error(values.reciprocal - before.reciprocal)
    by_rank = values.log_rank - before.log_rank
    rank_gain, rank_error = mean_and_error(by_rank)
    tried = len(history) * len(MEANS) + ladder.climb.tried
    return JointMessages(
        ladder=ladder,
        trained=TrainedMessages(Heads.shared(made.head.matrix.detach().cpu()), made.dev.messages._replace(mean=weight)),
        epoch=int(best["epoch"]),
        dev=float(values.reciprocal[: len(frozen[0][0].relevant)].mean()),
        gain=gain,
        error=error,
        rank_gain=rank_gain,
        rank_error=rank_error,
        harms=harms(by_rank, parts),
        p=min(1.0, tried * choose_scale({1.0: values.log_rank}, base.log_rank, parts).p),
        tried=tried,
        beside=sum(len(judged.relevant) for judged, _ in frozen[1:]),
    )


def _of_mean(mean: float) -> str:
    """Name of the measure with this weight of the label mean."""
    return f"RR@10, label mean {mean:g}"


def _with_heads(judged: Judged, heads: Heads | None, messages: Messages) -> Judged:
    return replace(judged, heads={} if heads is None else {messages.head: heads})


def _examples(store: Graph, taught: NDArray[np.bool_]) -> tuple[list[Example], Texts, list[str]]:
    """Examples of the labels to train on, their texts with those of all passages, and the passages' ids."""
    labels = store.labels[taught[store.labels[:, 0]]]
    if not len(labels):
        raise GnnRetrievalError("there is nothing to train on: no query that may be learned from has a label.")
    with store.texts() as texts:
        queries, passages = texts.query_ids(), texts.passage_ids()
        positives: dict[int, list[Candidate]] = {}
        for query, passage in labels.tolist():
            positives.setdefault(query, []).append(Candidate(passages[passage], "label"))
        rows = sorted(positives)
        query_texts = dict(zip((queries[row] for row in rows), texts.texts_of_queries(rows), strict=True))
        passage_texts = {passage.id: passage.full_text for passage in texts.passages()}
    examples = [Example(queries[row], tuple(positives[row]), ()) for row in rows]
    return examples, Texts(query_texts, passage_texts), passages
