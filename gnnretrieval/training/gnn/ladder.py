"""The ladder: a choice on dev that starts from the dual-encoder and adds a part only if it is better by evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, Sides
from gnnretrieval.resampling import corrected_ps
from gnnretrieval.training.gnn.head import HeadTraining, train_each

STEPS = (100, 300, 900)  # training steps of the head over ENOUGH labels; each head is trained separately
ENOUGH = 4096  # labels from which on a head takes all these steps
TRAINED_MEANS = (0.0, 0.2)  # weight of the label mean during the head's training
SIDES: tuple[Sides, ...] = ("both", "apart")
MEANS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LARGE_MEANS = (0.7, 1.0)  # tried without a head, or with the one that is kept
REJECTIONS = ((0, 0.0), (1, 0.05), (1, 0.1), (3, 0.05), (3, 0.1))
PASSES, UPDATE_SIZES = (4, 16), (0.05, 0.2, 0.5)  # of passage updates
PRIORS = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.03)
SCALINGS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
QUESTIONS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
HEADS = len(STEPS) * len(TRAINED_MEANS) * len(SIDES)
MOST_SETTINGS = len(MEANS) * (3 + HEADS) + len(STEPS) * len(SIDES) + HEADS + 2 * len(REJECTIONS)
MOST_SETTINGS += 3 * len(LARGE_MEANS) + 2 * len(SCALINGS) + 2 * len(PRIORS)
MOST_SETTINGS += 2 * len(UPDATE_SIZES) * len(PASSES)  # all rungs
MOST_PASSES = 2 * len(UPDATE_SIZES) * max(PASSES)  # of a ladder's updates
MOST_WITH_QUESTIONS = 2 + HEADS + len(MEANS) + len(REJECTIONS) + 2 * len(UPDATE_SIZES) * len(PASSES)  # with all weights
CUTOFF, _QUERIES = 10, 256


class Rung(NamedTuple):
    """A rung of the ladder.

    Attributes:
        name: The part that is added.
        messages: The best of its settings.
        dev: Mean RR@10 over all questions.
        gain: Mean gain in RR@10 over the last rung kept.
        error: Its standard error.
        kept: Whether the rung is kept.
        rank_gain: Mean gain in log rank.
        rank_error: Its standard error.
    """

    name: str
    messages: Messages
    dev: float
    gain: float
    error: float
    kept: bool
    rank_gain: float
    rank_error: float


class Climb(NamedTuple):
    """The result of climbing the ladder.

    Attributes:
        messages: Messages of the last rung kept.
        dev: Their mean RR@10.
        dual_encoder: Mean RR@10 of the dual-encoder.
        gain: Mean gain in RR@10 over the dual-encoder.
        measured: Log rank of each question ``(q,)`` by the settings tried.
        p: One-sided p-value of the gain in log rank, corrected for the settings measured
            (:func:`gnnretrieval.resampling.corrected_ps`), but not for adding up the best of each rung. The caller
            decides whether it is significant.
        rungs: All rungs, in order.
    """

    messages: Messages
    dev: float
    dual_encoder: float
    gain: float
    measured: Mapping[Messages, NDArray[np.float64]]
    p: float
    rungs: list[Rung]

    @property
    def tried(self) -> int:
        """Number of settings tried."""
        return len(self.measured)


def message_graph(
    store: Graph,
    hidden: NDArray[np.bool_] | None = None,
    device: str | torch.device = "cpu",
    *,
    queries_alone: bool = False,
) -> MessageGraph:
    """The store's features and edges in memory, ``4 d (m + n)`` bytes.

    Args:
        store: The graph.
        hidden: ``(n,)`` bool, True for queries to leave out of the graph; None: none.
        device: Where to put it.
        queries_alone: Without the passages' features and the scale, ``4 d n`` bytes.
    """
    shown = store.among(None if hidden is None else ~hidden)
    visible = np.ones(store.num_queries, dtype=bool) if shown is None else np.asarray(shown)
    labels = store.labels[visible[store.labels[:, 0]]]
    similarity = store.similarity
    passages, queries = (
        torch.from_numpy(similarity.prepare_array(np.asarray(array)))
        for array in (store.passage_features[: 0 if queries_alone else None], store.query_features)
    )
    scale = similarity.scale
    if not similarity.normalize:  # a constant factor keeps the ranking and makes step sizes comparable across encoders
        lengths = [float(vectors.norm(dim=1).mean()) if len(vectors) else 1.0 for vectors in (passages, queries)]
        passages, queries = passages / max(lengths[0], 1e-12), queries / max(lengths[1], 1e-12)
        scale = similarity.scale_of_mean(*lengths)
    return MessageGraph(
        passages,
        queries,
        torch.from_numpy(np.asarray(store.neighbors, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(labels)),
        torch.from_numpy(visible),
        similarity.normalize,
        scale,
    ).to(device)


def reciprocal_ranks(
    vectors: Tensor,
    queries: Tensor,
    relevant: Sequence[Sequence[int]],
    among: Sequence[Sequence[int] | None] | None = None,
) -> NDArray[np.float64]:
    """RR@10 of each query ``(q,)`` by dot product; arguments as of :func:`first_ranks`."""
    return reciprocal(first_ranks(vectors, queries, relevant, among))


def first_ranks(
    vectors: Tensor,
    queries: Tensor,
    relevant: Sequence[Sequence[int]],
    among: Sequence[Sequence[int] | None] | None = None,
) -> NDArray[np.int64]:
    """Rank, from 1, of the first relevant passage of each query ``(q,)`` by dot product.

    A tie with a passage that is not relevant counts against the query.

    Args:
        vectors: ``(m, d)`` passage vectors.
        queries: ``(q, d)``.
        relevant: Rows of each query's relevant passages.
        among: Rows of the passages that each query ranks, with the relevant ones among them; None, for all queries or
            for one: all passages.
    """
    ranks = np.ones(len(relevant), dtype=np.int64)
    for start in range(0, len(relevant), _QUERIES):
        part = slice(start, start + _QUERIES)
        scores = queries[part] @ vectors.T  # (b, m)
        if among is not None:
            scores = scores_among(scores, among[part])
        ranks[part] = first_ranks_of_scores(scores, relevant[part])
    return ranks


def reciprocal(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """RR@10 of ranks."""
    values: NDArray[np.float64] = np.where(ranks <= CUTOFF, 1 / ranks, 0.0)
    return values


def log_ranks(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    r""":math:`-\log_2` of ranks.

    Half the rank is a gain of 1, from any rank. RR@10 sees the first ten ranks alone, and mostly the first two. So a
    few hundred questions tell settings apart by log rank whose RR@10 differs by no more than chance
    (benchmarks/results/choice_on_dev.md).
    """
    values: NDArray[np.float64] = -np.log2(ranks)
    return values


def scores_among(scores: Tensor, among: Sequence[Sequence[int] | None]) -> Tensor:
    """The scores ``(b, m)`` of the passages that each query ranks, -inf elsewhere; None: all passages."""
    left = torch.full_like(scores, -torch.inf)
    for row, passages in enumerate(among):
        ranked: Any = slice(None) if passages is None else passages
        left[row, ranked] = scores[row, ranked]
    return left


def together(
    reciprocals: NDArray[np.float64], ranks: NDArray[np.float64]
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
    """How RR@10 and log ranks of questions ``(q,)`` are added: each in standard deviations of the dual-encoder's.

    Log rank tells settings apart from few questions; RR@10 is what counts.

    Args:
        reciprocals: The dual-encoder's RR@10 ``(q,)``.
        ranks: Its log ranks ``(q,)``.
    """
    spreads = [float(values.std()) or 1.0 for values in (reciprocals, ranks)]
    return lambda its_reciprocals, its_ranks: its_reciprocals / spreads[0] + its_ranks / spreads[1]


def first_ranks_of_scores(scores: Tensor, relevant: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """As :func:`first_ranks`, by scores ``(b, m)``, which it overwrites."""
    row = torch.tensor([row for row, passages in enumerate(relevant) for _ in passages], device=scores.device)
    passage = torch.tensor([passage for passages in relevant for passage in passages], device=scores.device)
    lowest = scores.new_full((len(scores),), -torch.inf)
    best = lowest.scatter_reduce(0, row, scores[row, passage], "amax")  # (b,)
    scores[row, passage] = -torch.inf
    limits = best - 1e-6 * best.abs()
    ranks: NDArray[np.int64] = 1 + (~(scores < limits[:, None])).sum(1).cpu().numpy()  # also behind scores that are NaN
    return ranks


def climb(
    measure: Callable[[Messages], NDArray[np.float64]],
    *,
    steps: Sequence[int] = STEPS,
    sides: Sequence[Sides] = SIDES,
    rejections: Sequence[tuple[int, float]] = REJECTIONS,
    update_sizes: Sequence[float] = UPDATE_SIZES,
    priors: Sequence[float] = PRIORS,
    scalings: Sequence[float] = SCALINGS,
    parts: NDArray[np.integer] | None = None,
    of_dev: int | None = None,
    by_rank: Callable[[Messages], NDArray[np.float64]] | None = None,
    errors: float = 1.0,
) -> Climb:
    """Climb the ladder: try the best setting of each rung, and keep it if it gains more than one standard error.

    The best setting of a rung is that of RR@10 and log rank together (:func:`together`). It is kept if one of them
    gains more than a standard error, and neither loses more than one.

    The rungs are label mean, head, head with label mean, rejection, prior, passage updates and local scaling; then
    label mean, head, rejection and local scaling again, together with what was kept; beside updates, which take long,
    prior and local scaling alone. The prior comes before updates, because these can push all passages with training
    questions away too, and a constant does it better. Gains are paired by question.

    Args:
        measure: Returns the RR@10 of each dev question ``(q,)`` for some messages.
        steps: Training steps of the heads to choose from (:func:`head_steps`).
        sides: Kinds of heads to choose from.
        rejections: Rounds and step sizes of rejection to choose from.
        update_sizes: Step sizes of passage updates to choose from, each with all :data:`PASSES`.
        priors: Priors to choose from.
        scalings: Exponents of local scaling to choose from.
        parts: ``(q,)`` kind of each dev question: a setting that loses more than a standard error in one kind is not
            kept. None: one kind.
        of_dev: Number of the questions, the first ones, that are of the dev split. Priors are chosen by these alone:
            the others, cross-validated training questions, do not show how often later questions will be about
            passages with training questions. None: all.
        by_rank: Returns the log rank of each dev question ``(q,)``, higher is better. None: as ``measure``.
        errors: How many standard errors a rung must gain (benchmarks/results/choice_on_dev.md).
    """
    ladder = Ladder(measure, by_rank or measure, parts, errors=errors)
    ladder.rung("label mean", [Messages(mean=mean) for mean in (*MEANS, *LARGE_MEANS)])
    heads = kinds_of_head(steps, sides)
    ladder.rung("head", [head for head in heads if not head.trained_mean])
    ladder.rung("head and label mean", [head._replace(mean=mean) for head, mean in product(heads, MEANS[1:])])
    ladder.rung("rejection", ladder.with_rejections(rejections))
    if len(priors) > 1:
        ladder.rung("prior", [ladder.kept._replace(prior=prior) for prior in priors], of_dev)
    ladder.rung("passage updates", ladder.with_updates(update_sizes))
    if len(priors) > 1 and ladder.kept.passes:
        ladder.rung("prior, again", [ladder.kept._replace(prior=prior) for prior in priors], of_dev)
    if len(scalings) > 1:
        ladder.rung("local scaling", [ladder.kept._replace(scaling=scaling) for scaling in scalings])
    # parts interact: another value of an early part may be the best beside the later ones
    if not ladder.kept.passes:
        trained_means = TRAINED_MEANS if ladder.kept.steps else (0.0,)
        ladder.rung(
            "label mean, again",
            [
                ladder.kept._replace(mean=mean, trained_mean=trained)
                for trained in trained_means
                for mean in (*MEANS, *LARGE_MEANS)
            ],
        )
        ladder.rung("head, again", [_with_head_of(ladder.kept, head) for head in (Messages(), *heads)])
        ladder.rung("rejection, again", ladder.with_rejections(rejections))
    if len(scalings) > 1:
        ladder.rung("local scaling, again", [ladder.kept._replace(scaling=scaling) for scaling in scalings])
    return ladder.result()


class Ladder:
    """What is kept while climbing from ``start``; other arguments as of :func:`climb`."""

    def __init__(
        self,
        measure: Callable[[Messages], NDArray[np.float64]],
        by_rank: Callable[[Messages], NDArray[np.float64]],
        parts: NDArray[np.integer] | None = None,
        start: Messages | None = None,
        errors: float = 1.0,
    ) -> None:
        self.measure, self.by_rank, self.parts, self.errors = measure, by_rank, parts, errors
        self.base = by_rank(Messages())
        self.both = together(measure(Messages()), self.base)
        self.kept = start or Messages()
        self.best = by_rank(self.kept)
        self.rungs: list[Rung] = []
        self.tried: dict[Messages, NDArray[np.float64]] = {}

    def with_rejections(self, rejections: Sequence[tuple[int, float]]) -> list[Messages]:
        """What is kept, with each kind of rejection."""
        return [self.kept._replace(rounds=rounds, step_size=size) for rounds, size in rejections]

    def with_updates(self, sizes: Sequence[float]) -> list[Messages]:
        """What is kept, and its head alone, with passage updates."""
        starts = dict.fromkeys((self.kept, self.kept._replace(mean=0.0, rounds=0, step_size=0.0)))
        return [
            start._replace(update_size=size, passes=passes) for start in starts for size in sizes for passes in PASSES
        ]

    def rung(self, name: str, choices: Sequence[Messages], first: int | None = None) -> None:
        """Try settings, by the ``first`` questions alone (None: all), and keep the best if it is better."""
        measured = {choice: self.by_rank(choice) for choice in choices if choice != self.kept}
        if not measured:
            return
        self.tried.update(measured)
        gains = {messages: values - self.best for messages, values in measured.items()}
        harmless = {messages: gain for messages, gain in gains.items() if not harms(gain, self.parts)}
        values = {
            messages: self.both(self.measure(messages), measured[messages])[:first].mean()
            for messages in harmless or gains
        }
        choice = max(values, key=lambda messages: float(values[messages]))  # the first of equals
        gain, error = mean_and_error(gains[choice][:first])
        reciprocals = self.measure(choice)
        difference = (reciprocals - self.measure(self.kept))[:first]
        better = bool(harmless) and gains_in_one(mean_and_error(difference), (gain, error), errors=self.errors)
        dev = float(reciprocals.mean())
        self.rungs.append(Rung(name, choice, dev, *mean_and_error(difference), better, gain, error))
        if better:
            self.kept, self.best = choice, measured[choice]

    def result(self) -> Climb:
        """The choice."""
        p = 1.0
        if float((self.best - self.base).mean()) > 0:
            p = corrected_ps(np.round(np.stack([self.best, *self.tried.values()]) - self.base, 12))[0]
        dev, dual_encoder = (float(self.measure(messages).mean()) for messages in (self.kept, Messages()))
        return Climb(self.kept, dev, dual_encoder, dev - dual_encoder, self.tried, p, self.rungs)


def harms(gains: NDArray[np.float64], parts: NDArray[np.integer] | None) -> bool:
    """Whether one of several kinds of question loses more than a standard error.

    Args:
        gains: ``(q,)`` difference of each question.
        parts: ``(q,)`` its kind; None: one kind, whose mean is what decides.
    """
    kinds: Sequence[int] = [] if parts is None else np.unique(parts).tolist()
    losses = [mean_and_error(-gains[parts == kind]) for kind in kinds] if len(kinds) > 1 else []
    return any(loss > error for loss, error in losses)


def gains_in_one(*gains: tuple[float, float], errors: float = 1.0) -> bool:
    """Whether one of several gains exceeds ``errors`` standard errors, and none loses one; (gain, error) each."""
    # where one question gains, gain and error are equal up to rounding
    enough = any(gain > errors * error * (1 + 1e-6) for gain, error in gains)
    return enough and all(gain >= -error for gain, error in gains)


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error; of one value the error is infinite."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.inf


def _with_head_of(messages: Messages, other: Messages) -> Messages:
    return messages._replace(steps=other.steps, trained_mean=other.trained_mean, sides=other.sides)


def steps_over(labels: int, steps: int) -> int:
    r"""Training steps of a head over ``L`` labels: :math:`\min(1, \sqrt{L / 4096})` of ``steps``.

    With few labels, all steps would overfit, and the passes that many labels need would learn too little.
    """
    return min(steps, max(1, round(steps * math.sqrt(labels / ENOUGH))))


def head_steps(graph: MessageGraph, taught: Tensor) -> list[int]:
    """:data:`STEPS` over the labels of the queries to train on, ``taught`` ``(n,)`` bool (:func:`steps_over`)."""
    labels = int(taught[graph.labels[:, 0].cpu()].sum())
    return [steps_over(labels, steps) for steps in STEPS]


def heads_of(
    graph: MessageGraph,
    steps: Sequence[int],
    seed: int,
    taught: Tensor | None = None,
    advance: Callable[[int], None] = lambda steps: None,
    share: float = 1.0,
    sides: Sequence[Sides] = SIDES,
) -> dict[Messages, Heads]:
    """Train heads for all ``steps``, :data:`TRAINED_MEANS` and ``sides``, with a ``share`` of the steps.

    Returns:
        The heads by :attr:`Messages.head`.
    """
    wanted = kinds_of_head(steps, sides)
    trainings = [HeadTraining(round(head.steps * share), head.sides, head.trained_mean) for head in wanted]
    trained = train_each(graph, trainings, seed=seed, taught=taught, advance=advance)
    return dict(zip(wanted, trained, strict=True))


def kinds_of_head(steps: Sequence[int], sides: Sequence[Sides]) -> list[Messages]:
    """All heads to choose from, by :attr:`Messages.head`."""
    return [
        Messages(taken, trained_mean=mean, sides=side) for taken, mean, side in product(steps, TRAINED_MEANS, sides)
    ]


def steps_of_heads(steps: Sequence[int], folds: int = 0, sides: int = len(SIDES)) -> int:
    """Number of training steps of all heads, with those of ``folds`` folds."""
    of_each = [taken + folds * round(taken * (folds - 1) / max(folds, 1)) for taken in steps]
    return len(TRAINED_MEANS) * sides * sum(of_each)
