"""The choice on dev that climbs from the dual-encoder: a larger model only where it is better by evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.label_messages import MessageGraph, Messages, message_vectors
from gnnretrieval.resampling import corrected_ps
from gnnretrieval.training.gnn.head import train_head

STEPS = (100, 300, 900)  # of the head; each is trained separately
TRAINED_MEANS = (0.0, 0.2)  # weight of the label mean while it is
HEADS = list(product(STEPS, TRAINED_MEANS))
MEANS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
REJECTIONS = ((0, 0.0), (1, 0.05), (1, 0.1), (3, 0.05), (3, 0.1))
PRIORS = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.03)
MOST_SETTINGS = len(MEANS) * (3 + len(HEADS)) + len(STEPS) + len(HEADS) + 2 * len(REJECTIONS) + len(PRIORS)  # all rungs
MOST = 2000  # dev questions that are chosen by
FEW, FOLDS = 500, 4  # dev questions below which cross-validated training questions stand beside them
ALIKE = 0.01  # p below which those are of another kind
CUTOFF, _QUERIES = 10, 256


class Rung(NamedTuple):
    """One step of the ladder.

    Attributes:
        name: What is added.
        messages: The best of its settings.
        dev: Mean RR@10 of all questions.
        gain: Over the rung that was kept before it, in the part of dev that gains least.
        error: Standard error of that gain.
        kept: Whether it is the new best.
    """

    name: str
    messages: Messages
    dev: float
    gain: float
    error: float
    kept: bool


class Climb(NamedTuple):
    """What was chosen.

    Attributes:
        messages: Of the rung that stands.
        dev: Its mean RR@10.
        dual_encoder: The dual-encoder's.
        gain: Over the dual-encoder, in the part of dev that gains least.
        tried: Settings that were tried.
        p: One-sided p-value of that gain, corrected for the number of settings that were tried
            (:func:`gnnretrieval.resampling.corrected_ps`). Below some level alone should the messages replace the
            dual-encoder.
        rungs: All, in order.
    """

    messages: Messages
    dev: float
    dual_encoder: float
    gain: float
    tried: int
    p: float
    rungs: list[Rung]


def message_graph(store: Graph, hidden: NDArray[np.bool_] | None = None) -> MessageGraph:
    """The store's features and edges in memory, ``4 d (m + n)`` bytes, without the ``hidden`` queries."""
    shown = store.among(None if hidden is None else ~hidden)
    visible = np.ones(store.num_queries, dtype=bool) if shown is None else np.asarray(shown)
    labels = store.labels[visible[store.labels[:, 0]]]
    similarity = store.similarity
    passages, queries = (
        torch.from_numpy(similarity.prepare_array(np.asarray(array)))
        for array in (store.passage_features, store.query_features)
    )
    scale = similarity.scale
    if not similarity.normalize:  # a constant factor changes no ranking, and gives steps and attention one unit
        lengths = float(passages.norm(dim=1).mean()), float(queries.norm(dim=1).mean())
        passages, queries = passages / max(lengths[0], 1e-12), queries / max(lengths[1], 1e-12)
        scale *= lengths[0] * lengths[1]
    return MessageGraph(
        passages,
        queries,
        torch.from_numpy(np.asarray(store.neighbors, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(labels)),
        torch.from_numpy(visible),
        similarity.normalize,
        scale,
    )


def reciprocal_ranks(vectors: Tensor, queries: Tensor, relevant: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """RR@10 of each query ``(q,)`` by dot product (:func:`reciprocal_ranks_of_scores`)."""
    found = np.zeros(len(relevant))
    for start in range(0, len(relevant), _QUERIES):
        part = slice(start, start + _QUERIES)
        found[part] = reciprocal_ranks_of_scores(queries[part] @ vectors.T, relevant[part])
    return found


def reciprocal_ranks_of_scores(scores: Tensor, relevant: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """RR@10 of each query ``(b,)`` by scores ``(b, m)``, which are spoilt.

    A tie with a passage that is not relevant counts against the query.
    """
    found = np.zeros(len(relevant))
    for row, passages in enumerate(relevant):
        best = scores[row, passages].max()
        scores[row, passages] = -torch.inf
        rank = 1 + int((scores[row] >= best - 1e-6 * best.abs()).sum())
        found[row] = 1 / rank if rank <= CUTOFF else 0.0
    return found


def climb(
    measure: Callable[[Messages], NDArray[np.float64]],
    *,
    priors: Sequence[float] = PRIORS,
    parts: NDArray[np.integer] | None = None,
) -> Climb:
    """Climb the ladder: each rung takes its best setting, and is kept where it gains more than one standard error.

    Rungs: label mean, head, head with label mean, rejection, prior; then label mean, head and
    rejection once more, beside what was kept. A rung's gain is paired by question.

    Args:
        measure: RR@10 of each dev question by some messages.
        priors: Priors to choose from.
        parts: Which part each dev question is of, where they stand for several kinds of question: a setting is worth
            what it gains on the worst of them. None: one kind.
    """
    base = measure(Messages())
    kinds = [np.ones(len(base), dtype=bool)] if parts is None else [parts == part for part in np.unique(parts)]
    kept, best, rungs, tried = Messages(), base, list[Rung](), dict[Messages, NDArray[np.float64]]()

    def gained(values: NDArray[np.float64], over: NDArray[np.float64]) -> tuple[float, float]:
        """Least gain of a kind, and its standard error."""
        gains = [values[kind] - over[kind] for kind in kinds]
        least = min(gains, key=lambda one: float(one.mean()))
        return float(least.mean()), float(least.std(ddof=1) / len(least) ** 0.5) if len(least) > 1 else np.inf

    def rung(name: str, choices: Sequence[Messages]) -> None:
        nonlocal kept, best
        measured = {choice: measure(choice) for choice in choices if choice != kept}
        if not measured:
            return
        tried.update(measured)
        choice = max(measured, key=lambda one: gained(measured[one], best)[0])  # of equal ones the first
        gain, error = gained(measured[choice], best)
        better = gain > error
        rungs.append(Rung(name, choice, float(measured[choice].mean()), gain, error, better))
        if better:
            kept, best = choice, measured[choice]

    rung("label mean", [Messages(mean=mean) for mean in MEANS])
    rung("head", [Messages(steps=steps) for steps in STEPS])
    both = [Messages(steps, mean, trained_mean=trained) for (steps, trained), mean in product(HEADS, MEANS[1:])]
    rung("head and label mean", both)
    rung("rejection", [kept._replace(rounds=rounds, step_size=size) for rounds, size in REJECTIONS])
    if len(priors) > 1:
        rung("prior", [kept._replace(prior=prior) for prior in priors])
    trainings = TRAINED_MEANS if kept.steps else (0.0,)
    rung("label mean, again", [kept._replace(mean=mean, trained_mean=one) for one in trainings for mean in MEANS])
    rung("head, again", [kept._replace(steps=steps, trained_mean=one) for steps, one in ((0, 0.0), *HEADS)])
    rung("rejection, again", [kept._replace(rounds=rounds, step_size=size) for rounds, size in REJECTIONS])
    gain, _ = gained(best, base)
    p = 1.0
    if gain > 0:
        gains = np.round(np.stack([best, *tried.values()]) - base, 12)
        p = max(corrected_ps(gains[:, kind])[0] for kind in kinds)
    return Climb(kept, float(best.mean()), float(base.mean()), gain, len(tried), p, rungs)


def rows_of(count: int) -> NDArray[np.int64]:
    """The dev questions, of ``count``, that are chosen by: at most :data:`MOST`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(MOST, count)).astype(np.int64))


class Judged(NamedTuple):
    """Questions that settings are measured by, over the graph that they are asked of.

    Attributes:
        graph: Without these questions.
        heads: By steps and trained mean, trained without them.
        queries: ``(q, d)``, as they are compared.
        relevant: Rows of their relevant passages.
    """

    graph: MessageGraph
    heads: Mapping[tuple[int, float], Tensor]
    queries: Tensor
    relevant: Sequence[Sequence[int]]

    @classmethod
    def of(
        cls,
        graph: MessageGraph,
        heads: Mapping[tuple[int, float], Tensor],
        queries: NDArray[np.floating],
        relevant: Sequence[Sequence[int]],
    ) -> Judged:
        """At most :data:`MOST` questions, evenly spread, from features ``(q, d)`` and relevant rows."""
        rows = rows_of(len(relevant))
        asked = graph.prepare(torch.from_numpy(np.asarray(queries[rows], dtype=np.float32)))
        return cls(graph, heads, asked, [list(relevant[row]) for row in rows.tolist()])

    @torch.no_grad()
    def measure(self, messages: Messages) -> NDArray[np.float64]:
        """RR@10 of each ``(q,)``."""
        head = self.heads[messages.steps, messages.trained_mean] if messages.steps else None
        vectors = message_vectors(self.graph, head, messages)
        return reciprocal_ranks(vectors, self.queries, self.relevant)

    @property
    def warm(self) -> NDArray[np.bool_]:
        """Whether a relevant passage of each question has questions in the graph ``(q,)``."""
        counts = self.graph.label_counts
        return np.array([bool((counts[list(rows)] > 0).any()) for rows in self.relevant], dtype=bool)


def heads_of(
    graph: MessageGraph,
    seed: int,
    taught: Tensor | None = None,
    advance: Callable[[int], None] = lambda steps: None,
    share: float = 1.0,
) -> dict[tuple[int, float], Tensor]:
    """A head for each of :data:`HEADS`, by that share of its steps."""
    heads = {}
    for steps, mean in HEADS:
        taken = round(steps * share)
        heads[steps, mean] = train_head(graph, taken, mean=mean, seed=seed, taught=taught)
        advance(taken)
    return heads


def steps_of_heads(folds: int = 0) -> int:
    """Steps of all heads, and of those of so many folds."""
    return sum(steps + folds * round(steps * (folds - 1) / max(folds, 1)) for steps, _ in HEADS)


def cross_validated(
    graph: MessageGraph, dev: Judged, seed: int, taught: Tensor, advance: Callable[[int], None] = lambda steps: None
) -> list[Judged]:
    """Training questions, each measured over a graph and heads that lack it, to stand beside few dev questions.

    A fold's heads go over its questions as often as the heads that are kept go over all.

    They are drawn so that as large a share of them as of dev's is about passages that have other questions. There are
    none where the dual-encoder ranks them better or worse than dev's (p < 0.01): they are of another kind.

    Args:
        graph: The graph that is chosen over.
        dev: What they stand beside.
        seed: Of the draw.
        taught: ``(n,)`` True for queries that may be asked.
        advance: Called with steps done.
    """
    rng = np.random.default_rng([seed, 0, 2])
    labels = graph.labels.numpy()
    asked = np.unique(labels[:, 0])
    asked = asked[taught.numpy()[asked]]
    fold = np.full(len(graph.queries), -1)
    fold[asked] = rng.permutation(len(asked)) % FOLDS
    relevant: dict[int, list[int]] = {}
    for query, passage in labels.tolist():
        relevant.setdefault(query, []).append(passage)
    folds = []
    for number in range(FOLDS):
        hidden = torch.from_numpy(fold == number)
        if not bool(hidden.any()):
            continue
        inside = graph.without(hidden)
        here = np.flatnonzero(fold == number)
        heads = heads_of(inside, seed, taught, advance, share=1 - 1 / FOLDS)  # as often over fewer questions
        relevant_here = [relevant[row] for row in here.tolist()]
        folds.append(Judged(inside, heads, graph.prepare(graph.queries[here]), relevant_here))
    if not folds:
        return []
    warm = np.concatenate([one.warm for one in folds])
    kept = _matched(warm, float(dev.warm.mean()), rng)
    bounds = np.cumsum([0, *(len(one.relevant) for one in folds)])
    drawn = []
    for one, start, stop in zip(folds, bounds, bounds[1:], strict=False):
        some = np.flatnonzero(kept[start:stop])
        drawn.append(one._replace(queries=one.queries[some], relevant=[one.relevant[row] for row in some.tolist()]))
    drawn = [one for one in drawn if len(one.relevant)]
    return drawn if _alike(dev, drawn) else []


def _alike(dev: Judged, drawn: Sequence[Judged]) -> bool:
    """Whether the dual-encoder ranks the drawn questions about as well as dev's."""
    if not drawn:
        return False
    of_drawn = np.concatenate([one.measure(Messages()) for one in drawn])
    p = stats.ttest_ind(of_drawn, dev.measure(Messages()), equal_var=False).pvalue
    return not p < ALIKE  # nan where all are equal


def _matched(warm: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The most questions ``(q,)`` of which ``share`` is warm, drawn at random."""
    of_warm, of_cold = rng.permutation(np.flatnonzero(warm)), rng.permutation(np.flatnonzero(~warm))
    most = [len(rows) / part for rows, part in ((of_warm, share), (of_cold, 1 - share)) if part > 0]
    total = min(most)
    kept = np.zeros(len(warm), dtype=bool)
    kept[of_warm[: round(total * share)]] = True
    kept[of_cold[: round(total * (1 - share))]] = True
    return kept
