"""Hard negatives from the graph: neighbours of a query that are not relevant to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def sample_hard_negatives(
    neighbors: NDArray[np.uint32], queries: Rows, labels: Rows, count: int, rng: np.random.Generator
) -> Rows:
    """Sample up to ``count`` neighbours of each query that are not labelled relevant to it.

    Args:
        neighbors: ``(n, k)`` passages of each query.
        queries: ``(B,)`` query rows.
        labels: ``(L, 2)`` relevant pairs (query row, passage row).
        count: Number per query; a query with fewer irrelevant neighbours gives all of them.
        rng: Generator that draws them.

    Returns:
        Sorted int64 passage rows of the whole batch, without duplicates.
    """
    passages = np.asarray(neighbors[queries], dtype=np.int64)  # (B, k)
    width = int(passages.max(initial=0)) + 1
    pairs = queries[:, None] * width + passages  # one number a pair, so that isin compares pairs
    of_batch = labels[np.isin(labels[:, 0], queries)]
    relevant = of_batch[of_batch[:, 1] < width]
    is_relevant = np.isin(pairs, relevant[:, 0] * width + relevant[:, 1])
    order = np.where(is_relevant, np.inf, rng.random(passages.shape))  # relevant neighbours come last
    chosen = np.argsort(order, axis=1, kind="stable")[:, :count]
    kept = ~np.take_along_axis(is_relevant, chosen, axis=1)
    return np.unique(np.take_along_axis(passages, chosen, axis=1)[kept])
