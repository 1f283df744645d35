"""Choose on dev how to fuse two rankings, or to use the better one alone.

Reciprocal-rank fusion at equal weights is often worse than the better of its two rankings. So a fusion is chosen only
where its gain over the better ranking on dev is likely. A stricter level would keep one ranking alone on a few hundred
dev questions where a fusion is several points better (benchmarks/fusion_level.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.trec import Run
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation.measures import per_query
from gnnretrieval.evaluation.names import parse_measures, without_cutoff
from gnnretrieval.index.fuse import K, Method, SideBySide
from gnnretrieval.resampling import corrected_ps

LEVEL = 0.3  # largest p at which a fusion is accepted


class Fusion(NamedTuple):
    """One way to fuse two runs: arguments of :func:`gnnretrieval.index.fuse.fuse`."""

    method: Method
    weights: tuple[float, float]

    @property
    def distance(self) -> float:
        """Distance from equal weights, 0 to 1."""
        return abs(self.weights[0] - self.weights[1]) / sum(self.weights)


HALVES = (Fusion("rrf", (1.0, 0.0)), Fusion("rrf", (0.0, 1.0)))
FUSIONS = (
    Fusion("rrf", (1.0, 1.0)),
    *(Fusion("weighted", (round(1 - tenth / 10, 1), tenth / 10)) for tenth in range(1, 10)),
)


class FusionChoice(NamedTuple):
    """The fusion of two runs that was chosen on dev.

    Attributes:
        method: How to fuse the runs.
        weights: Weights of the two runs; one is 0 where the other run alone was chosen.
        value: Mean of the measure on dev, 0 to 1.
        half: Mean of the better run alone.
        p: One-sided p of the chosen fusion's gain over the better run alone, corrected for the number of fusions tried;
            where that run was chosen, the smallest p of any fusion.
        measure: Name by ir-measures.
        queries: Number of dev questions.
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
            names: Names of the two runs.
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
        """The choice as JSON values, for provenance."""
        return {**self._asdict(), "weights": list(self.weights)}


def choose_fusion(
    runs: Sequence[Run], qrels: Mapping[str, Mapping[str, int]], measure: str = "RR@10", *, k: int = K
) -> FusionChoice:
    """Choose how to fuse two systems from their runs on dev questions.

    The candidates are each run alone, reciprocal ranks at equal weights, and normalised scores at weights 0.1 … 0.9.
    The better run alone is kept unless a fusion beats it with p ≤ 0.3 (see :func:`chosen`). Use dev questions that
    neither system was trained on.

    Args:
        runs: Two runs on dev questions.
        qrels: Relevance by passage id by dev question.
        measure: Name by ir-measures.
        k: The constant of ``rrf``.

    Raises:
        InputError: there are not two runs; also see :func:`gnnretrieval.evaluation.measures.per_query` and
            :func:`gnnretrieval.index.fuse.fuse`.
    """
    if len(runs) != 2:
        raise InputError(f"a fusion is chosen for two runs, and there are {len(runs)}.")
    return chosen(fusion_values(runs, qrels, measure, k=k), measure)


def fusion_values(
    runs: Sequence[Run], qrels: Mapping[str, Mapping[str, int]], measure: str, *, k: int = K
) -> dict[Fusion, NDArray[np.float64]]:
    """The measure's value on each judged question ``(q,)``, by fusion; arguments as of :func:`choose_fusion`."""
    (parsed,) = parse_measures([measure])
    depth = None if without_cutoff(parsed) == parsed else int(parsed["cutoff"])
    queries = [query for query in qrels if any(query in run for run in runs)]
    side_by_side = {
        method: {query: SideBySide.of(runs, query, method, k) for query in queries}
        for method in {fusion.method for fusion in FUSIONS}
    }
    values = {}
    for fusion in (*HALVES, *FUSIONS):
        fused = {query: its.joined(fusion.weights, depth) for query, its in side_by_side[fusion.method].items()}
        (by_query,) = per_query(qrels, fused, [measure]).values()
        values[fusion] = np.fromiter(by_query.values(), dtype=np.float64)
    return values


def chosen(values: Mapping[Fusion, NDArray[np.float64]], measure: str, level: float = LEVEL) -> FusionChoice:
    """Choose by the values on dev: the better run alone, or the fusion nearest equal weights of those near the best.

    A fusion is considered where the corrected p of its gain over the better run is at most ``level``. The best of these
    has the highest mean. Those whose paired difference from it is within one standard error are near the best.

    Args:
        values: By fusion, the measure's value on each dev question ``(q,)``, for the same questions in the same order;
            :data:`HALVES` are among the keys.
        measure: Name of the measure.
        level: Largest p at which a fusion is accepted.
    """
    half = max(HALVES, key=lambda one: values[one].mean())
    fusions = [fusion for fusion in values if fusion not in HALVES]
    ps = corrected_ps(np.array([values[fusion] - values[half] for fusion in fusions]))
    better = [fusion for fusion, p in zip(fusions, ps, strict=True) if p <= level]
    picked, p = half, min(ps)
    if better:
        best = max(better, key=lambda one: values[one].mean())
        good = [fusion for fusion in better if _within_one_error(values[fusion], values[best])]
        picked = min(good, key=lambda one: (round(one.distance, 6), -values[one].mean()))
        p = ps[fusions.index(picked)]
    value, of_half = (float(values[one].mean()) for one in (picked, half))
    return FusionChoice(picked.method, picked.weights, value, of_half, p, measure, len(values[half]))


def _within_one_error(values: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    """Whether the mean paired difference from ``best`` is at most one standard error of it."""
    differences = best - values  # (q,)
    return len(differences) > 1 and differences.mean() <= differences.std(ddof=1) / np.sqrt(len(differences))
