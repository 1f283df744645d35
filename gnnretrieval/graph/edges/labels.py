"""Label edges: queries joined to their relevant passages. The store also keeps the retrieved lists without them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import pair_scores
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.storage.arrays import blocks

_PAIRS = 65536  # pairs scored at a time

# Lists as retrieved, before label edges, of the queries that got one: query rows (r,), passages (r, k), scores (r, k).
BEFORE_LABELS = ("found_queries", "found_neighbors", "found_scores")


class Labelled(NamedTuple):
    """Lists of passages with label edges.

    Attributes:
        rows: ``(n, k)`` passage rows.
        scores: ``(n, k)``.
        changed: ``(r,)`` sorted rows of the queries with a changed list.
        put_in: Number of label edges added.
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
    """Put each query's relevant passages into its list, as far as they fit.

    A relevant passage that was not retrieved replaces the last passage that is not relevant. The passages put in are at
    the end of the list, highest score first.

    Args:
        rows: ``(n, k)`` retrieved passages, best first.
        scores: ``(n, k)``.
        labels: ``(L, 2)`` relevant pairs (row of ``rows``, passage row).
        queries: ``(n, d)`` features.
        passages: ``(m, d)`` features.
        similarity: Scores the new pairs.
    """
    k = rows.shape[1]
    missing = labels[~(rows[labels[:, 0]] == labels[:, 1:]).any(1)]  # labels that were not retrieved
    given = np.empty(len(missing), dtype=np.float32)
    for part in blocks(len(missing), _PAIRS):
        query, passage = missing[part].T
        given[part] = pair_scores(queries[query], passages[passage], similarity)
    order = np.lexsort((missing[:, 1], -given, missing[:, 0]))  # by query, then best first
    missing, given = missing[order], given[order]
    # make room: relevant passages that were retrieved must stay, so only the others can be replaced
    changed, first, wanted = np.unique(missing[:, 0], return_index=True, return_counts=True)
    m = int(max(rows.max(initial=0), labels[:, 1].max(initial=0))) + 1
    free = ~np.isin(changed[:, None] * m + rows[changed], labels[:, 0] * m + labels[:, 1])  # (r, k) not relevant
    put_in = np.minimum(wanted, free.sum(1))
    from_end = np.cumsum(free[:, ::-1], axis=1)[:, ::-1]  # rank of the free slot, counted from the end
    dropped = free & (from_end <= put_in[:, None])
    kept_first = np.argsort(dropped, axis=1, kind="stable")
    rows, scores = rows.copy(), scores.copy()
    rows[changed] = np.take_along_axis(rows[changed], kept_first, 1)
    scores[changed] = np.take_along_axis(scores[changed], kept_first, 1)
    number = np.arange(len(missing)) - np.repeat(first, wanted)  # position among its query's missing labels
    fits = number < np.repeat(put_in, wanted)
    query = missing[fits, 0]
    place = k - np.repeat(put_in, wanted)[fits] + number[fits]
    rows[query, place], scores[query, place] = missing[fits, 1], given[fits]
    return Labelled(rows, scores, changed[put_in > 0], int(put_in.sum()))


def arrays_before_labels(
    changed: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> dict[str, NDArray[np.generic]]:
    """The arrays of :data:`BEFORE_LABELS` by name.

    Args:
        changed: ``(r,)`` rows of the queries with a changed list.
        rows: ``(n, k)`` passages before label edges were put in.
        scores: ``(n, k)`` their scores.
    """
    kept = (changed, rows[changed].astype(np.uint32), scores[changed])
    return dict(zip(BEFORE_LABELS, kept, strict=True))
