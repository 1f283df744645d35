"""The choice on dev that climbs from the dual-encoder: a larger model only where it is better by evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from gnnretrieval.graph.store import GraphStore
from gnnretrieval.nn.label_messages import MessageGraph, Messages, message_vectors
from gnnretrieval.training.head import train_head

STEPS = (100, 300, 900)  # of the head; each is trained separately
MEANS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
REJECTIONS = ((0, 0.0), (1, 0.05), (1, 0.1), (3, 0.05), (3, 0.1))
PRIORS = (-0.3, -0.2, -0.1, -0.05, 0.0, 0.03)
TRAINED_MEAN = 0.2  # weight of the label mean while the head is trained
MOST = 2000  # dev questions that are chosen by
CUTOFF, _QUERIES = 10, 256


class Rung(NamedTuple):
    """One step of the ladder.

    Attributes:
        name: What is added.
        messages: The best of its settings.
        dev: Mean RR@10.
        gain: Over the rung that was kept before it.
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
        p: One-sided p-value of the gain over the dual-encoder, times the number of settings that were tried
            (Bonferroni), 1 at most. Below some level alone should the messages replace the dual-encoder.
        rungs: All, in order.
    """

    messages: Messages
    dev: float
    dual_encoder: float
    p: float
    rungs: list[Rung]


def message_graph(store: GraphStore, hidden: NDArray[np.bool_] | None = None) -> MessageGraph:
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
    """RR@10 of each query ``(q,)`` by dot product; a tie with a passage that is not relevant counts against it."""
    found = np.zeros(len(relevant))
    for start in range(0, len(relevant), _QUERIES):
        scores = queries[start : start + _QUERIES] @ vectors.T  # (b, m)
        for row, passages in enumerate(relevant[start : start + _QUERIES]):
            best = scores[row, passages].max()
            scores[row, passages] = -torch.inf
            rank = 1 + int((scores[row] >= best - 1e-6 * best.abs()).sum())
            found[start + row] = 1 / rank if rank <= CUTOFF else 0.0
    return found


def climb(measure: Callable[[Messages], NDArray[np.float64]], priors: Sequence[float] = PRIORS) -> Climb:
    """Climb the ladder: each rung takes its best setting, and is kept where it gains more than one standard error.

    Rungs: label mean, head, head with label mean, rejection, prior; then label mean, head and
    rejection once more, beside what was kept. A rung's gain is paired by question.

    Args:
        measure: RR@10 of each dev question by some messages.
        priors: Priors to choose from.
    """
    base = measure(Messages())
    kept, best, rungs, tried = Messages(), base, list[Rung](), set[Messages]()

    def rung(name: str, choices: Sequence[Messages]) -> None:
        nonlocal kept, best
        measured = [(choice, measure(choice)) for choice in choices if choice != kept]
        if not measured:
            return
        tried.update(choice for choice, _ in measured)
        choice, values = max(measured, key=lambda one: one[1].mean())  # of equal ones the first
        gains = values - best
        gain, error = float(gains.mean()), float(gains.std(ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else np.inf
        better = gain > error
        rungs.append(Rung(name, choice, float(values.mean()), gain, error, better))
        if better:
            kept, best = choice, values

    rung("label mean", [Messages(mean=mean) for mean in MEANS])
    rung("head", [Messages(steps=steps) for steps in STEPS])
    rung("head and label mean", [Messages(steps=steps, mean=mean) for steps in STEPS for mean in MEANS[1:]])
    rung("rejection", [kept._replace(rounds=rounds, step_size=size) for rounds, size in REJECTIONS])
    if len(priors) > 1:
        rung("prior", [kept._replace(prior=prior) for prior in priors])
    rung("label mean, again", [kept._replace(mean=mean) for mean in MEANS])
    rung("head, again", [kept._replace(steps=steps) for steps in (0, *STEPS)])
    rung("rejection, again", [kept._replace(rounds=rounds, step_size=size) for rounds, size in REJECTIONS])
    return Climb(kept, float(best.mean()), float(base.mean()), min(1.0, len(tried) * _p(best - base)), rungs)


def _p(gains: NDArray[np.float64]) -> float:
    gains = np.round(gains, 12)
    if len(gains) < 2 or np.ptp(gains) == 0:
        return 0.0 if gains.mean() > 0 else 1.0
    return float(stats.ttest_1samp(gains, 0.0, alternative="greater").pvalue)


def heads_of(
    graph: MessageGraph, seed: int, taught: Tensor | None = None, mean: float = TRAINED_MEAN
) -> dict[int, Tensor]:
    """A head for each of :data:`STEPS`."""
    return {steps: train_head(graph, steps, mean=mean, seed=seed, taught=taught) for steps in STEPS}


def measured_by(
    graph: MessageGraph,
    heads: dict[int, Tensor],
    queries: NDArray[np.floating],
    relevant: Sequence[Sequence[int]],
) -> Callable[[Messages], NDArray[np.float64]]:
    """What :func:`climb` measures with, over at most :data:`MOST` dev questions, evenly spread.

    Args:
        graph: The graph that is chosen over.
        heads: By steps.
        queries: ``(q, d)`` features of the dev questions.
        relevant: Rows of their relevant passages.
    """
    rows = np.unique(np.linspace(0, len(relevant) - 1, min(MOST, len(relevant))).astype(np.int64))
    asked = graph.prepare(torch.from_numpy(np.asarray(queries[rows], dtype=np.float32)))
    judged = [list(relevant[row]) for row in rows.tolist()]

    def measure(messages: Messages) -> NDArray[np.float64]:
        with torch.no_grad():
            vectors = message_vectors(graph, heads.get(messages.steps), messages)
            return reciprocal_ranks(vectors, asked, judged)

    return measure
