"""Choose on dev how to fuse two rankings, or to use the better one alone.

The weight that is best on a few hundred dev questions is mostly chance. The mean of the best weights of many bootstrap
resamples of these questions varies less, and is better on other questions (benchmarks/fusion_choice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.errors import InputError, counted
from gnnretrieval.evaluation.measures import per_query, require_common
from gnnretrieval.evaluation.names import parse_measures, without_cutoff
from gnnretrieval.index.fuse import Method, SideBySide

METHOD: Method = "weighted"
WEIGHTS = np.arange(11) / 10  # of the second run
RESAMPLES, AT_ONCE = 1000, 100


class ClickedDev(NamedTuple):
    """How dev questions count if their labels are clicks (:mod:`gnnretrieval.feedback.clicked_questions`).

    Attributes:
        shown: Ids of the passages that were shown, by question; None where the log does not say.
        weights: Inverse of the probability of a label, by question.
    """

    shown: Mapping[str, Collection[str] | None]
    weights: Mapping[str, float]


class FusionChoice(NamedTuple):
    """The fusion of two runs that was chosen on dev.

    Attributes:
        weights: Weights of the two runs' normalised scores (``weighted`` of :func:`gnnretrieval.index.fuse.fuse`).
            They sum to 1; one is 0 where the other run alone was chosen.
        value: Mean of the measure on dev, 0 to 1.
        half: Mean of the better run alone.
        measure: Name by ir-measures.
        queries: Number of dev questions.
    """

    weights: tuple[float, float]
    value: float
    half: float
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
        on = f"on {counted(self.queries, 'dev question')}, {self.measure} × 100"
        if not self.is_fusion:
            better = names[self.weights.index(max(self.weights))]
            return f"{better} alone, {100 * self.value:.1f} {on}: the fusion changes nothing or loses"
        weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, self.weights, strict=True))
        half = f"{100 * self.half:.1f} by the better run alone"
        return f"{METHOD} with weights {weights}: {100 * self.value:.1f} {on}; {half}"

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values, for provenance."""
        return {"method": METHOD, **self._asdict(), "weights": list(self.weights)}


def choose_fusion(
    runs: Sequence[Run],
    qrels: Mapping[str, Mapping[str, int]],
    measure: str = "RR@10",
    clicked: ClickedDev | None = None,
) -> FusionChoice:
    """Choose how to fuse two systems from their runs on dev questions.

    The runs' normalised scores are summed. The second run's weight is :func:`mean_best_weight` over 0, 0.1 … 1. The
    better run is used alone where the fusion by that weight changes nothing on dev, or loses more than a standard
    error. Use dev questions that neither system was trained on.

    Args:
        runs: Two runs on dev questions.
        qrels: Relevance by passage id by dev question.
        measure: Name by ir-measures.
        clicked: How the questions count if their labels are clicks; None: all alike, among all passages.

    Raises:
        InputError: there are not two runs, one of them has no query in common with ``qrels``, or a score is not finite;
            also see :func:`gnnretrieval.evaluation.measures.per_query`.
    """
    if len(runs) != 2:
        raise InputError(f"a fusion is chosen for two runs, and there are {len(runs)}.")
    for run in runs:
        require_common(qrels, run)
    values_of = fusion_values(runs, qrels, measure, clicked)
    values = np.stack([values_of(weight) for weight in WEIGHTS])  # (w, q)
    better = -1 if values[-1].mean() > values[0].mean() else 0
    weight = round(mean_best_weight(values), 2)
    joined = values_of(weight)
    if not is_kept(joined - values[better]):
        weight, joined = float(WEIGHTS[better]), values[better]
    half, value = float(values[better].mean()), float(joined.mean())
    return FusionChoice((round(1 - weight, 2), weight), value, half, measure, values.shape[1])


def is_kept(gains: NDArray[np.float64]) -> bool:
    """Whether a fusion with these gains over the better run ``(q,)`` changes something, and loses at most one error."""
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return bool(gains.any() and gains.mean() >= -error)


def fusion_values(
    runs: Sequence[Run], qrels: Mapping[str, Mapping[str, int]], measure: str, clicked: ClickedDev | None = None
) -> Callable[[float], NDArray[np.float64]]:
    """The measure's value on each judged question ``(q,)`` as a function of the second run's weight.

    Arguments and errors as of :func:`choose_fusion`.
    """
    (parsed,) = parse_measures([measure])
    shown = {} if clicked is None else clicked.shown
    depth = None if without_cutoff(parsed) == parsed else int(parsed["cutoff"])
    queries = [query for query in qrels if any(query in run for run in runs)]
    side_by_side = {query: SideBySide.of(runs, query, METHOD) for query in queries}

    def joined(query: str, weight: float) -> list[ScoredPassage]:
        among, weights = shown.get(query), (1 - weight, weight)
        if among is None:
            return side_by_side[query].joined(weights, depth)
        return [passage for passage in side_by_side[query].joined(weights) if passage.passage_id in among]

    def values_of(weight: float) -> NDArray[np.float64]:
        (by_query,) = per_query(qrels, {query: joined(query, weight) for query in queries}, [measure]).values()
        values = np.fromiter(by_query.values(), dtype=np.float64)
        if clicked is None:
            return values
        by_clicks = np.array([clicked.weights[query] for query in by_query])
        weighted: NDArray[np.float64] = values * by_clicks / by_clicks.mean()
        return weighted

    return values_of


def mean_best_weight(values: NDArray[np.float64], seed: int = 0) -> float:
    """The mean, over 1,000 bootstrap resamples of the questions, of the weight with the highest mean value.

    This is bagging (Breiman 1996). Of weights that are equally good on a resample, their mean counts.

    Args:
        values: The measure by weight of :data:`WEIGHTS` and question ``(w, q)``.
        seed: Seed of the resamples.
    """
    queries, rng = values.shape[1], np.random.default_rng(seed)
    best_weights = []
    for _ in range(RESAMPLES // AT_ONCE):
        counts = rng.multinomial(queries, np.full(queries, 1 / queries), size=AT_ONCE)  # (r, q)
        means = counts @ values.T / queries  # (r, w)
        best = means > means.max(1, keepdims=True) - 1e-9  # sums of the same numbers round differently
        best_weights.append(best @ WEIGHTS / best.sum(1))
    return float(np.concatenate(best_weights).mean())
