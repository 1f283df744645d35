"""The candidate passages ``P_b`` of a step (Algorithm 1, line 7), and their relevance to its queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.graph.subgraph import Rows


class Step(NamedTuple):
    """One step's pairs and candidates.

    Attributes:
        queries: ``(B,)`` query row of each (query, positive) pair.
        candidates: ``(C,)`` passage rows, sorted.
        positives: ``(B,)`` column of each pair's positive.
        relevant: ``(B, C)`` True where the candidate is not a negative: it is relevant, or excluded from the negatives.
    """

    queries: Rows
    candidates: Rows
    positives: Rows
    relevant: NDArray[np.bool_]


def step_of(queries: Rows, labels: Rows, candidates: Rows | None, negatives: Rows, allowed: Rows | None = None) -> Step:
    """Pair ``queries`` with their positives, over given candidates or the batch's own passages.

    Args:
        queries: ``(b,)`` rows of the batch's queries.
        labels: ``(L, 2)`` relevant pairs (query row, passage row), sorted.
        candidates: Sorted passage rows that include every positive; None: the positives and ``negatives``.
        negatives: Rows of the hard negatives.
        allowed: Sorted rows of the passages that may be negatives; None: all.
    """
    pairs = labels[np.isin(labels[:, 0], queries)]
    if candidates is None:
        candidates = np.union1d(pairs[:, 1], negatives)
    columns = np.searchsorted(candidates, pairs[:, 1])
    number = np.searchsorted(np.unique(pairs[:, 0]), pairs[:, 0])
    of_query = np.zeros((int(number.max(initial=-1)) + 1, len(candidates)), dtype=bool)
    of_query[number, columns] = True
    if allowed is not None:
        of_query[:, ~np.isin(candidates, allowed)] = True
    return Step(pairs[:, 0], candidates, columns, of_query[number])
