"""Paired significance tests, bootstrap intervals and effect sizes over queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gnnretrieval.errors import InputError
from gnnretrieval.resampling import RESAMPLES, SIGNS_AT_ONCE

BOOTSTRAPS = 2_000
LEVEL = 0.95


@dataclass(frozen=True)
class TestResult:
    """Outcome of a paired test of ``a`` against ``b``."""

    __test__: ClassVar[bool] = False  # pytest must not collect it

    difference: float
    """Mean of ``a`` minus mean of ``b``."""
    p: float
    """Two-sided p-value."""
    wins: int
    """Queries on which ``a`` is higher."""
    ties: int
    """Queries on which they are equal."""
    losses: int
    """Queries on which ``a`` is lower."""


def paired_test(
    a: Mapping[str, float],
    b: Mapping[str, float],
    method: Literal["t", "randomisation"] = "t",
    seed: int = 0,
) -> TestResult:
    """Two-sided paired test of one measure of two systems.

    Args:
        a: Values of one system by query id.
        b: Values of the other, for the same queries.
        method: ``"t"`` is Student's paired t-test. ``"randomisation"`` is Fisher's test: it swaps the systems' values
            at random on each query, 10,000 times, or in every possible way where these are fewer.
        seed: Seed of the randomisation.

    Returns:
        The result. p is 1 where every query is a tie, and where there is only one query. Where every query differs by
        the same amount, the variance is zero and the t-test's p is 0: with few queries use the randomisation test.

    Raises:
        InputError: the queries differ, or there are none.
    """
    if a.keys() != b.keys():
        odd = next(iter(a.keys() ^ b.keys()))
        raise InputError(f"a paired test needs both systems on the same queries, and {odd!r} is in one only.")
    if not a:
        raise InputError("a paired test needs at least one query, and there is none.")
    values_a = np.array(list(a.values()), dtype=np.float64)
    values_b = np.array([b[query_id] for query_id in a], dtype=np.float64)
    differences = values_a - values_b  # (queries,)
    p = _t_test(values_a, values_b) if method == "t" else _randomisation(differences, seed)
    return TestResult(
        difference=float(differences.mean()),
        p=p,
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )


def _t_test(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    if len(a) < 2 or np.array_equal(a, b):
        return 1.0
    if np.ptp(a - b) == 0:  # scipy gives the same with a warning
        return 0.0
    from scipy import stats  # loads for a second

    return float(stats.ttest_rel(a, b).pvalue)


def _randomisation(differences: npt.NDArray[np.float64], seed: int) -> float:
    differences = differences[differences != 0]  # a tie has no sign to flip
    n = len(differences)
    observed = abs(differences.sum()) * (1 - 1e-12)  # sums of the same numbers round differently
    if 2**n <= RESAMPLES:
        signs = (np.arange(2**n)[:, None] >> np.arange(n) & 1) * 2.0 - 1.0  # (2^n, n), every assignment
        return float(np.mean(np.abs(signs @ differences) >= observed))
    rng = np.random.default_rng(seed)
    as_large, done = 0, 0
    while done < RESAMPLES:
        rows = min(max(SIGNS_AT_ONCE // n, 1), RESAMPLES - done)
        signs = rng.integers(0, 2, size=(rows, n), dtype=np.int8) * 2.0 - 1.0  # (rows, n)
        as_large += int((np.abs(signs @ differences) >= observed).sum())
        done += rows
    # The observed assignment counts too, so that p is never 0.
    return (as_large + 1) / (RESAMPLES + 1)


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over queries, from the percentiles of 2,000 resamples.

    Args:
        values: One value per query: a measure, or the differences of two systems.
        seed: Seed of the resampling.

    Returns:
        Low and high end; both are the mean where the values do not vary.
    """
    if not values or np.ptp(values) == 0:
        mean = float(np.mean(values)) if values else 0.0
        return mean, mean
    from scipy import stats

    result = stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=BOOTSTRAPS,
        batch=max(1, 2**22 // len(values)),
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def effect_size(differences: Sequence[float]) -> float | None:
    """Cohen's ``d`` of paired values: mean over standard deviation of the differences; None where they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return float(np.mean(differences) / np.std(differences, ddof=1))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p-values, in the order given (Holm 1979).

    The i-th smallest of m is multiplied by m - i + 1, then raised to the corrected value of the one before it, and
    limited to 1. Rejecting every hypothesis below a level keeps the chance of any false rejection below that level.
    """
    corrected = [1.0] * len(ps)
    floor = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        floor = max(floor, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = floor
    return corrected
