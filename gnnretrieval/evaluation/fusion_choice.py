"""Which fusion of two rankings to use, if any: chosen on dev, and never one whose gain may be chance.

Reciprocal-rank fusion at equal weights is often below the better of its two rankings. Here the better one alone is the
answer unless a fusion beats it on dev by more than chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.trec import Run
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation.measures import per_query
from gnnretrieval.index.fuse import K, Method, fuse
from gnnretrieval.resampling import corrected_ps

LEVEL = 0.05  # p up to which a fusion is taken


class Fusion(NamedTuple):
    """One way to fuse two runs: arguments of :func:`gnnretrieval.index.fuse.fuse`."""

    method: Method
    weights: tuple[float, float]

    @property
    def distance(self) -> float:
        """From equal weights, 0 to 1."""
        return abs(self.weights[0] - self.weights[1]) / sum(self.weights)


HALVES = (Fusion("rrf", (1.0, 0.0)), Fusion("rrf", (0.0, 1.0)))
FUSIONS = (
    Fusion("rrf", (1.0, 1.0)),
    *(Fusion("weighted", (round(1 - tenth / 10, 1), tenth / 10)) for tenth in range(1, 10)),
)


class FusionChoice(NamedTuple):
    """What dev says about the fusion of two runs.

    Attributes:
        method: How to fuse them.
        weights: Of the two; one is 0 where the other run is better alone.
        value: Mean of the measure on dev, 0 to 1.
        half: The same of the better run alone.
        p: One-sided, that the chosen fusion is no better than the better run alone, corrected for the number of fusions
            tried; where that run is chosen, the smallest p of a fusion.
        measure: By ir-measures' name.
        queries: Dev questions.
    """

    method: Method
    weights: tuple[float, float]
    value: float
    half: float
    p: float
    measure: str
    queries: int

    @property
    def is_fusion(self) -> bool:
        """Whether both runs are used."""
        return all(self.weights)

    def line(self, names: Sequence[str]) -> str:
        """The choice in words.

        Args:
            names: Of the two runs.
        """
        on = f"on {self.queries:,} dev questions, {self.measure} × 100"
        better = names[self.weights.index(max(self.weights))]
        if not self.is_fusion:
            return (
                f"{better} alone, {100 * self.value:.1f} {on}: no fusion gains by more than chance (p = {self.p:.2g})"
            )
        weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, self.weights, strict=True))
        return (
            f"{self.method} with weights {weights}: {100 * self.value:.1f} {on}; {100 * self.half:.1f} by the better"
            f" run alone (p = {self.p:.2g})"
        )

    def as_json(self) -> dict[str, Any]:
        """For provenance."""
        return {**self._asdict(), "weights": list(self.weights)}


def choose_fusion(
    runs: Sequence[Run], qrels: Mapping[str, Mapping[str, int]], measure: str = "RR@10", *, k: int = K
) -> FusionChoice:
    """How to fuse two runs, by their runs of dev questions.

    Tried are each run alone, reciprocal ranks at equal weights, and normalised scores at weights 0.1 … 0.9. The better
    run alone is kept unless fusions beat it with p ≤ 0.05 (see :func:`chosen`). Choose on questions that neither
    ranking was trained on.

    Args:
        runs: Two, of dev questions.
        qrels: Relevance by passage id by dev question.
        measure: By ir-measures' name.
        k: The constant of ``rrf``.

    Raises:
        InputError: not two runs, or as :func:`gnnretrieval.evaluation.measures.per_query` and
            :func:`gnnretrieval.index.fuse.fuse`.
    """
    if len(runs) != 2:
        raise InputError(f"a fusion is chosen of two runs, and there are {len(runs)}.")
    values = {}
    for fusion in (*HALVES, *FUSIONS):
        fused = fuse(runs, fusion.method, weights=fusion.weights, k=k)
        (by_query,) = per_query(qrels, fused, [measure]).values()
        values[fusion] = np.fromiter(by_query.values(), dtype=np.float64)
    return chosen(values, measure)


def chosen(values: Mapping[Fusion, NDArray[np.float64]], measure: str) -> FusionChoice:
    """The better run alone, or the fusion nearest equal weights of those about as good as the best.

    A fusion is considered where its gain over the better run has a corrected p up to 0.05. The best of these has the
    highest mean; those within one standard error of it, that of the paired difference, are about as good.

    Args:
        values: The measure on each dev question ``(q,)``, the same questions in the same order, by fusion; both halves
            are among them.
        measure: Its name.
    """
    half = max(HALVES, key=lambda one: values[one].mean())
    fusions = [fusion for fusion in values if fusion not in HALVES]
    ps = corrected_ps(np.array([values[fusion] - values[half] for fusion in fusions]))
    better = [fusion for fusion, p in zip(fusions, ps, strict=True) if p <= LEVEL]
    picked, p = half, min(ps)
    if better:
        best = max(better, key=lambda one: values[one].mean())
        good = [fusion for fusion in better if _within_one_error(values[fusion], values[best])]
        picked = min(good, key=lambda one: (round(one.distance, 6), -values[one].mean()))
        p = ps[fusions.index(picked)]
    value, of_half = (float(values[one].mean()) for one in (picked, half))
    return FusionChoice(picked.method, picked.weights, value, of_half, p, measure, len(values[half]))


def _within_one_error(values: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    """Whether the mean is within one standard error of the paired difference of the best's."""
    differences = best - values  # (q,)
    return len(differences) > 1 and differences.mean() <= differences.std(ddof=1) / np.sqrt(len(differences))
