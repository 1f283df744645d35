"""Quantiles and histograms of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gnnretrieval.pages.reports import Figures

BINS = 30


class Spread(Figures):
    """Quantiles of whole numbers, without interpolation."""

    median: int
    p95: int
    max: int


class Bin(Figures):
    """A bar of a histogram of whole numbers."""

    first: int = Field(alias="from")
    """Least number of the bin; ``from`` in JSON."""
    last: int = Field(alias="to")
    """Largest number of the bin; ``to`` in JSON."""
    count: int


class Distribution(Spread):
    """Quantiles and a histogram of whole numbers."""

    histogram: list[Bin]


def spread(counts: NDArray[Any] | Sequence[int]) -> Spread:
    """Quantiles of one or more whole numbers."""
    values = np.asarray(counts)
    median, p95 = np.percentile(values, (50, 95), method="inverted_cdf")
    return Spread(median=int(median), p95=int(p95), max=int(values.max()))


def in_equal_bins(counts: NDArray[Any]) -> list[Bin]:
    """A histogram with about 30 equal bins up to the 99th percentile, and one bin above it."""
    top = int(np.percentile(counts, 99, method="inverted_cdf"))
    low = int(counts.min())
    width = max(1, -(-(top - low + 1) // BINS))
    bounds = list(range(low, top + 1, width))
    bounds.append(bounds[-1] + width)
    return _bins(counts, [*bounds, *([int(counts.max()) + 1] if counts.max() >= bounds[-1] else [])])


def in_doubling_bins(counts: NDArray[Any]) -> list[Bin]:
    """A histogram with the bins 0, 1, 2, 3-4, 5-8, …"""
    bounds = [0, 1]
    while bounds[-1] <= counts.max():
        bounds.append(2 ** (len(bounds) - 2) + 1)
    return _bins(counts, bounds)


def _bins(counts: NDArray[Any], bounds: list[int]) -> list[Bin]:
    """The bins between bounds; each bin has its lower bound."""
    numbers, _ = np.histogram(counts, bins=np.asarray(bounds, dtype=np.int64) - 0.5)
    return [
        Bin(first=first, last=after - 1, count=int(number))
        for first, after, number in zip(bounds, bounds[1:], numbers, strict=False)
    ]
