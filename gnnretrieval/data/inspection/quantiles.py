"""Quantiles and histograms of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 30


def spread(counts: NDArray[Any] | Sequence[int]) -> dict[str, int]:
    """``median``, ``p95`` and ``max`` of one or more whole numbers, without interpolation."""
    values = np.asarray(counts)
    median, p95 = np.percentile(values, (50, 95), method="inverted_cdf")
    return {"median": int(median), "p95": int(p95), "max": int(values.max())}


def in_equal_bins(counts: NDArray[Any]) -> list[dict[str, int]]:
    """A histogram with about 30 equal bins up to the 99th percentile, and one bin above it."""
    top = int(np.percentile(counts, 99, method="inverted_cdf"))
    low = int(counts.min())
    width = max(1, -(-(top - low + 1) // BINS))
    bounds = list(range(low, top + 1, width))
    bounds.append(bounds[-1] + width)
    return _bins(counts, [*bounds, *([int(counts.max()) + 1] if counts.max() >= bounds[-1] else [])])


def in_doubling_bins(counts: NDArray[Any]) -> list[dict[str, int]]:
    """A histogram with the bins 0, 1, 2, 3-4, 5-8, …"""
    bounds = [0, 1]
    while bounds[-1] <= counts.max():
        bounds.append(2 ** (len(bounds) - 2) + 1)
    return _bins(counts, bounds)


def _bins(counts: NDArray[Any], bounds: list[int]) -> list[dict[str, int]]:
    """``from``, ``to`` and ``count`` of the bins between bounds; each bin has its lower bound."""
    numbers, _ = np.histogram(counts, bins=np.asarray(bounds, dtype=np.int64) - 0.5)
    return [
        {"from": first, "to": after - 1, "count": int(number)}
        for first, after, number in zip(bounds, bounds[1:], numbers, strict=False)
    ]
