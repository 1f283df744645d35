"""Figures of a graph's edges: degrees of passages, recall by rank, and scores by rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.pages.reports import Figures
from gnnretrieval.storage.array_checks import require_finite
from gnnretrieval.storage.arrays import blocks, gather_rows, release

PERCENTILES = (1, 25, 50, 75, 99)
SCORED = 200_000  # maximum number of queries to read scores of: more hardly change a percentile
BINS = 40
_NARROWEST = 1e-3  # least width of a histogram: float32 has room for its bins there
_BLOCK = 65536


class Percentiles(Figures):
    """Percentiles of a distribution."""

    p1: float
    p25: float
    p50: float
    p75: float
    p99: float


class _Mean(Figures):
    mean: float


class MeanAndPercentiles(Percentiles, _Mean):  # in JSON the fields of the last base come first
    """The mean and percentiles of a distribution."""


class Histogram(Figures):
    """Counts in equal bins."""

    edges: list[float]
    """Bounds of the bins, one more than there are bins."""
    counts: list[int]


class DegreeBin(Figures):
    """Number of passages that are joined to ``first`` to ``last`` queries."""

    first: int = Field(alias="from")
    """Least number of queries; ``from`` in JSON."""
    last: int = Field(alias="to")
    """Largest number of queries; ``to`` in JSON."""
    passages: int


class Degrees(MeanAndPercentiles):
    """Number of queries joined to a passage, over all passages."""

    max: int
    share_never_found: float
    """Share of passages joined to no query."""
    edges_of_top_percent: float
    """Share of the edges into the 1 % of the passages with most queries: 0.01 if all have equally many."""
    histogram: list[DegreeBin]
    """In bins 0, 1, 2, 3-4, 5-8, …"""


class MostFound(Figures):
    """A passage that is joined to many queries."""

    id: str
    title: str
    text: str
    queries: int


class ScoresByRank(Figures):
    """Histograms of the scores of some ranks."""

    edges: list[float]
    """Bounds of the bins, the same for all ranks."""
    ranks: dict[str, list[int]]
    """Counts of the bins by rank: 1, 2, 5, 10, … and k."""


class Scores(Percentiles):
    """Scores of the edges over all ranks."""

    queries: int
    """Number of queries that the scores were read of."""
    by_rank: ScoresByRank


def sample_queries(store: Graph, most: int, seed: int) -> Rows:
    """Rows of at most ``most`` random queries of a store or view, ascending."""
    shown = shown_queries(store)
    if len(shown) <= most:
        return shown
    return np.sort(np.random.default_rng([seed, len(shown)]).choice(shown, most, replace=False))


def percentiles(values: NDArray[Any]) -> dict[str, float]:
    """The fields of :class:`Percentiles`; ``values`` must not be empty."""
    return {f"p{p}": float(value) for p, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}


def histogram(values: NDArray[Any], low: float, high: float, bins: int = BINS) -> Histogram:
    """Histogram over equal bins from ``low`` to ``high``."""
    counts, edges = np.histogram(values, bins=bins, range=(low, max(high, low + _NARROWEST)))
    return Histogram(edges=edges.tolist(), counts=counts.tolist())


def degree_figures(degrees: Rows) -> Degrees:
    """Distribution of ``degrees`` ``(m,)``, the number of queries joined to each passage."""
    m, total = len(degrees), int(degrees.sum())
    first_percent = max(1, round(m / 100))
    top = np.partition(degrees, m - first_percent)[m - first_percent :]
    bounds = [0, 1]
    while bounds[-1] < degrees.max():
        bounds.append(2 * bounds[-1])
    counts = np.bincount(np.searchsorted(bounds, degrees), minlength=len(bounds))
    return Degrees(
        mean=float(degrees.mean()),
        **percentiles(degrees),
        max=int(degrees.max()),
        share_never_found=float((degrees == 0).mean()),
        edges_of_top_percent=float(top.sum() / total) if total else 0.0,
        histogram=[
            DegreeBin(first=bounds[number - 1] + 1 if number else 0, last=bound, passages=int(counts[number]))
            for number, bound in enumerate(bounds)
        ],
    )


def most_found(store: Graph, degrees: Rows, most: int) -> list[MostFound]:
    """The ``most`` passages that are joined to most queries; ties by row."""
    if store.hidden:
        degrees = degrees.copy()
        degrees[list(store.hidden)] = 0
    place = len(degrees) - max(1, min(most, len(degrees)))
    leading = np.flatnonzero(degrees >= max(1, np.partition(degrees, place)[place]))
    top = leading[np.lexsort((leading, -degrees[leading]))][:most]
    with store.texts() as texts:
        passages = [texts.passage(int(row)) for row in top]
    return [
        MostFound(id=passage.id, title=passage.title, text=passage.text, queries=int(degrees[passage.row]))
        for passage in passages
    ]


def recall_by_rank(store: Graph) -> tuple[int, list[float]]:
    """Number of labelled queries, and the share with a relevant passage among the first 1, 2, … k retrieved.

    Label edges do not count. The last share is the graph's recall ceiling: for the other queries only label edges lead
    to a relevant passage. Queries without a relevant passage (from a click log) are not counted.
    """
    labels, m = store.labels, store.num_passages
    labelled = len(np.unique(labels[:, 0]))
    hits = np.zeros(store.k, dtype=np.int64)  # queries with a relevant passage among the first 1, 2, … k
    for rows in blocks(store.num_queries, _BLOCK):
        first, last = np.searchsorted(labels[:, 0], (rows.start, rows.stop))
        relevant = labels[first:last, 0] * m + labels[first:last, 1]
        pairs = np.arange(rows.start, rows.stop)[:, None] * m + store.retrieved(rows)[0]
        hits += np.maximum.accumulate(np.isin(pairs, relevant), axis=1).sum(0)
        release(store.neighbors)
    return labelled, [float(count) / labelled for count in hits] if labelled else []


def score_figures(store: Graph, seed: int) -> Scores:
    """Scores of the edges of all queries, or of a sample of :data:`SCORED`."""
    rows = sample_queries(store, SCORED, seed)
    scores = gather_rows(store.scores, rows)
    require_finite(scores, store.path / "scores.npy")
    ranks = sorted({1, store.k, *(rank for rank in (2, 5, 10, 20, 50, 100) if rank < store.k)})
    low, high = float(scores.min()), float(scores.max())
    by_rank = {str(rank): histogram(scores[:, rank - 1], low, high) for rank in ranks}
    return Scores(
        **percentiles(scores),
        queries=len(rows),
        by_rank=ScoresByRank(
            edges=by_rank["1"].edges, ranks={rank: counted.counts for rank, counted in by_rank.items()}
        ),
    )
