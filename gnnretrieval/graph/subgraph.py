"""The two-hop neighbourhood of some passages: all that their embeddings depend on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class Subgraph(NamedTuple):
    """Passages, the queries that found them, and the passages that those queries found.

    An edge is named by its place in ``neighbors``: ``query row * k + rank``.

    Attributes:
        passages: ``(T,)`` rows of the target passages, as asked.
        queries: ``(S,)`` rows of the adjacent queries, sorted.
        sources: ``(U,)`` rows of the passages that ``queries`` found, sorted.
        passage_edges: ``(E,)`` edges into ``passages``, sorted by passage (as asked), then by query.
        passage_index: ``(E,)`` position in ``queries`` of each of them.
        passage_offsets: ``(T + 1,)`` where each passage's edges start.
        query_edges: ``(S * k,)`` edges into ``queries``, by query, then by rank.
        query_index: ``(S * k,)`` position in ``sources`` of each of them.
        query_offsets: ``(S + 1,)``.
    """

    passages: Rows
    queries: Rows
    sources: Rows
    passage_edges: Rows
    passage_index: Rows
    passage_offsets: Rows
    query_edges: Rows
    query_index: Rows
    query_offsets: Rows


def two_hops(
    passages: Rows,
    neighbors: NDArray[np.uint32],
    indptr: Rows,
    edges: Rows,
    visible: NDArray[np.bool_] | None = None,
) -> Subgraph:
    """The subgraph on which eq. 6-10 give the embeddings of ``passages`` exactly.

    Args:
        passages: ``(T,)`` target rows; a row may stand twice.
        neighbors: ``(n, k)`` passages of each query.
        indptr: ``(m + 1,)`` of the passage-side CSR.
        edges: ``(n * k,)`` of the passage-side CSR: the edges of each passage, sorted.
        visible: ``(n,)`` False for queries that are masked out of the graph; None: all are in it.
    """
    k = neighbors.shape[1]
    starts, counts = indptr[passages], indptr[passages + 1] - indptr[passages]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    passage_edges = edges[positions]
    if visible is not None:
        kept = visible[passage_edges // k]
        passage_edges = passage_edges[kept]
        offsets = np.concatenate([[0], np.cumsum(kept)])[offsets]
    queries, passage_index = np.unique(passage_edges // k, return_inverse=True)
    sources, query_index = np.unique(neighbors[queries].astype(np.int64).ravel(), return_inverse=True)
    return Subgraph(
        passages=passages,
        queries=queries,
        sources=sources,
        passage_edges=passage_edges,
        passage_index=passage_index,
        passage_offsets=offsets,
        query_edges=(queries[:, None] * k + np.arange(k)).ravel(),
        query_index=query_index,
        query_offsets=np.arange(len(queries) + 1) * k,
    )
