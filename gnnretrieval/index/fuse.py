"""Fusion of rankings by reciprocal ranks (Cormack et al. 2009) or by a weighted sum of normalised scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, rank
from gnnretrieval.errors import InputError

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
    it, and a run of weight 0 adds no passages. :func:`gnnretrieval.evaluation.choose_fusion` chooses method and weights
    on dev.

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
        raise InputError("fusion wants two runs or more.")
    factors = list(weights) if weights is not None else [1.0] * len(runs)
    if len(factors) != len(runs):
        raise InputError(f"{len(factors)} weights for {len(runs)} runs: give one a run.")
    if any(not 0 <= factor < float("inf") for factor in factors) or not any(factors):
        raise InputError(
            f"weights {', '.join(f'{factor:g}' for factor in factors)}: give numbers from 0 on, not all 0."
        )
    fused: Run = {}
    for query in dict.fromkeys(query for run in runs for query in run):
        scores: dict[str, float] = {}
        for factor, run in zip(factors, runs, strict=True):
            if not factor:
                continue
            ranking = run.get(query, [])
            for passage, score in zip(ranking, _scores(ranking, method, k, query), strict=True):
                scores[passage.passage_id] = scores.get(passage.passage_id, 0.0) + factor * score
        fused[query] = rank(ScoredPassage(id_, score) for id_, score in scores.items())[:depth]
    return fused


def _scores(ranking: Sequence[ScoredPassage], method: Method, k: int, query: str) -> list[float]:
    if method == "rrf":
        return [1 / (k + place) for place in range(1, len(ranking) + 1)]
    values = [passage.score for passage in ranking]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise InputError(f"query {query!r} has a score that is not finite: fuse by ranks (rrf).")
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]
