"""Label edges: a query is joined to its relevant passages too, and the store keeps what was found before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import pair_scores
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.storage.arrays import blocks

_PAIRS = 65536  # pairs scored at a time

# What was found, of the queries whose list a label edge was put into: rows (r,), passages (r, k), scores (r, k).
FOUND = ("found_queries", "found_neighbors", "found_scores")


class Labelled(NamedTuple):
    """Lists that hold the relevant passages.

    Attributes:
        rows: ``(n, k)`` passages.
        scores: ``(n, k)``.
        changed: Sorted rows of the lists that are not what was found.
        put_in: Label edges that were.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    changed: NDArray[np.int64]
    put_in: int


def with_labels(
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
    labels: NDArray[np.int64],
    queries: NDArray[np.floating],
    passages: NDArray[np.floating],
    similarity: Similarity,
) -> Labelled:
    """Lists that hold each query's relevant passages, the best ``k`` of them.

    A relevant passage that was not found takes the place of the last one that is not relevant; those put in stand at
    the end, by score.

    Args:
        rows: ``(n, k)`` of the passages found.
        scores: ``(n, k)``.
        labels: ``(L, 2)`` relevant pairs (row of ``rows``, passage row).
        queries: ``(n, d)``.
        passages: ``(m, d)``.
        similarity: How the two are compared.
    """
    k = rows.shape[1]
    missing = labels[~(rows[labels[:, 0]] == labels[:, 1:]).any(1)]
    given = np.empty(len(missing), dtype=np.float32)
    for part in blocks(len(missing), _PAIRS):
        asked, absent = missing[part].T
        given[part] = pair_scores(queries[asked], passages[absent], similarity)
    order = np.lexsort((missing[:, 1], -given, missing[:, 0]))
    missing, given = missing[order], given[order]
    changed, first, wanted = np.unique(missing[:, 0], return_index=True, return_counts=True)
    m = int(max(rows.max(initial=0), labels[:, 1].max(initial=0))) + 1
    free = ~np.isin(changed[:, None] * m + rows[changed], labels[:, 0] * m + labels[:, 1])  # (r, k) not relevant
    put_in = np.minimum(wanted, free.sum(1))
    from_end = np.cumsum(free[:, ::-1], axis=1)[:, ::-1]  # the how many-eth free place it is, from the end
    dropped = free & (from_end <= put_in[:, None])
    kept_first = np.argsort(dropped, axis=1, kind="stable")
    rows, scores = rows.copy(), scores.copy()
    rows[changed] = np.take_along_axis(rows[changed], kept_first, 1)
    scores[changed] = np.take_along_axis(scores[changed], kept_first, 1)
    number = np.arange(len(missing)) - np.repeat(first, wanted)  # of a query's missing ones, best first
    fits = number < np.repeat(put_in, wanted)
    line = missing[fits, 0]
    place = k - np.repeat(put_in, wanted)[fits] + number[fits]
    rows[line, place], scores[line, place] = missing[fits, 1], given[fits]
    return Labelled(rows, scores, changed[put_in > 0], int(put_in.sum()))


def found_arrays(
    changed: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> dict[str, NDArray[np.generic]]:
    """The arrays of :data:`FOUND` by name, of the lists ``(n, k)`` before label edges were put in."""
    kept = (changed, rows[changed].astype(np.uint32), scores[changed])
    return dict(zip(FOUND, kept, strict=True))
