"""Hard negatives: passages that a query found and that are not relevant to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def sample_hard_negatives(
    neighbors: NDArray[np.uint32], queries: Rows, labels: Rows, count: int, rng: np.random.Generator
) -> Rows:
    """Up to ``count`` random neighbours of each query that are not labelled as relevant to it.

    Args:
        neighbors: ``(n, k)`` passages of each query.
        queries: ``(B,)`` query rows.
        labels: ``(L, 2)`` relevant pairs (query row, passage row).
        count: How many a query; fewer where a query has fewer such neighbours.
        rng: Source of the choice.

    Returns:
        Passage rows, sorted and without duplicates.
    """
    found = np.asarray(neighbors[queries], dtype=np.int64)  # (B, k)
    pairs = queries[:, None] * (int(found.max(initial=0)) + 1) + found
    of_batch = labels[np.isin(labels[:, 0], queries)]
    relevant = of_batch[of_batch[:, 1] <= found.max(initial=0)]
    is_relevant = np.isin(pairs, relevant[:, 0] * (int(found.max(initial=0)) + 1) + relevant[:, 1])
    order = np.where(is_relevant, np.inf, rng.random(found.shape))
    chosen = np.argsort(order, axis=1, kind="stable")[:, :count]
    kept = ~np.take_along_axis(is_relevant, chosen, axis=1)
    return np.unique(np.take_along_axis(found, chosen, axis=1)[kept])
