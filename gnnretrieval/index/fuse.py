"""Fusion of rankings by reciprocal ranks (Cormack et al. 2009) or by a weighted sum of normalised scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, rank
from gnnretrieval.errors import InputError, counted

Method = Literal["rrf", "weighted"]
K = 60  # the value of Cormack et al.


def fuse(
    runs: Sequence[Run],
    method: Method = "rrf",
    *,
    weights: Sequence[float] | None = None,
    k: int = K,
    depth: int | None = None,
) -> Run:
    """Fuse several runs into one, query by query.

    ``rrf``: ``Σ_i w_i / (k + rank_i)``. ``weighted``: ``Σ_i w_i s_i``, where the scores of a run are scaled to 0 … 1
    for each query by their minimum and maximum (all 1 if they are equal). A run that lacks a passage adds nothing to
    it, and a run of weight 0 adds no passages. :func:`gnnretrieval.evaluation.choose_fusion` chooses weights for
    ``weighted`` on dev.

    Args:
        runs: Two or more runs. The result has the queries of all of them.
        method: ``rrf`` or ``weighted``.
        weights: One weight per run; None: 1 each.
        k: The constant of ``rrf``.
        depth: Number of passages kept for a query; None: all.

    Raises:
        InputError: There are fewer than two runs or another number of weights, a weight is negative or not finite, all
            weights are 0, or ``weighted`` meets a score that is not finite.
    """
    if len(runs) < 2:
        raise InputError("fusion needs two runs or more.")
    factors = list(weights) if weights is not None else [1.0] * len(runs)
    require_weights(factors, len(runs))
    queries = dict.fromkeys(query for run in runs for query in run)
    return {query: SideBySide.of(runs, query, method, k).joined(factors, depth) for query in queries}


def require_weights(weights: Sequence[float], runs: int) -> None:
    """Check the weights of a number of runs.

    Raises:
        InputError: There is another number of weights, one is negative or not finite, or all are 0.
    """
    if len(weights) != runs:
        raise InputError(f"{counted(len(weights), 'weight')} for {runs} runs: give one per run.")
    if any(not 0 <= weight < float("inf") for weight in weights) or not any(weights):
        raise InputError(
            f"weights {', '.join(f'{weight:g}' for weight in weights)}: give numbers from 0 on, not all 0."
        )


class SideBySide(NamedTuple):
    """One query's rankings by several runs, scaled and ready to be joined with any weights.

    Attributes:
        ids: Ids of the passages of all runs ``(n,)``.
        scores: Score of each passage by each run ``(r, n)``; 0 where the run lacks it.
        listed: Whether each run has each passage ``(r, n)``.
    """

    ids: list[str]
    scores: NDArray[np.float64]
    listed: NDArray[np.bool_]

    @classmethod
    def of(cls, runs: Sequence[Run], query: str, method: Method, k: int = K) -> Self:
        """The query's rankings in ``runs``; arguments and errors as of :func:`fuse`."""
        rankings = [run.get(query, []) for run in runs]
        column: dict[str, int] = {}
        places = [[column.setdefault(scored.passage_id, len(column)) for scored in ranking] for ranking in rankings]
        scores = np.zeros((len(runs), len(column)))
        listed = np.zeros(scores.shape, dtype=bool)
        for row, (ranking, columns) in enumerate(zip(rankings, places, strict=True)):
            scores[row, columns] = _scores(ranking, method, k, query)
            listed[row, columns] = True
        return cls(list(column), scores, listed)

    def joined(self, weights: Sequence[float], depth: int | None = None) -> list[ScoredPassage]:
        """The ranking by the weighted sum of scores, without the passages that only runs of weight 0 have."""
        total = np.zeros(len(self.ids))
        for weight, row in zip(weights, self.scores, strict=True):
            total += weight * row
        kept = self.listed[np.array(weights) > 0].any(0)
        if depth is not None and kept.sum() > depth:
            # sort only the best, and those that tie with the last of them
            rounded = np.where(kept, total, -np.inf).astype(np.float32)
            kept &= rounded >= np.partition(rounded, -depth)[-depth]
        rows = np.flatnonzero(kept).tolist()
        return rank(ScoredPassage(self.ids[row], total[row]) for row in rows)[:depth]


def _scores(ranking: Sequence[ScoredPassage], method: Method, k: int, query: str) -> NDArray[np.float64]:
    if method == "rrf":
        return 1 / (k + np.arange(1, len(ranking) + 1, dtype=np.float64))
    values = np.array([passage.score for passage in ranking], dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"query {query!r} has a score that is not finite: fuse by ranks (rrf).")
    return scaled(values)


def scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores ``(n,)`` of one query scaled to 0 … 1 by their minimum and maximum; all 1 if they are equal."""
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    return (values - low) / (high - low) if high > low else np.ones(len(values))
