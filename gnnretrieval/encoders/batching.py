"""Batches of texts of similar length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def batches_by_tokens(lengths: NDArray[np.int64], budget: int, *, padded: bool = True) -> list[NDArray[np.int64]]:
    """Batches of texts of similar length, longest first: the row numbers of each batch.

    Args:
        lengths: ``(texts,)`` number of tokens of each text.
        budget: Maximum number of tokens in a batch; a longer text is a batch by itself.
        padded: Count padding too: every text is as long as the longest of its batch.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    ends = np.cumsum(lengths[order])
    while start < len(order):
        if padded:
            count = budget // max(1, int(lengths[order[start]]))
        else:
            before = ends[start - 1] if start else 0
            count = int(np.searchsorted(ends, before + budget, side="right")) - start
        batches.append(order[start : start + max(1, count)])
        start += max(1, count)
    return batches
