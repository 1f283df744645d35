"""Two-hop neighbourhoods of passages: all that their embeddings depend on."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
PassageEdges = Literal["all", "hard-negatives"]


class Subgraph(NamedTuple):
    """Passages, the queries adjacent to them, and the passages adjacent to those queries; all arrays int64.

    An edge is named by its position in the stored neighbours: ``query row * stride + rank``.

    Attributes:
        passages: ``(T,)`` rows of the target passages, in the given order.
        queries: ``(S,)`` rows of the adjacent queries, sorted.
        sources: ``(U,)`` rows of the passages adjacent to ``queries``, sorted.
        passage_edges: ``(E,)`` edges into ``passages``, sorted by passage (in the given order), then by query.
        passage_index: ``(E,)`` position in ``queries`` of each of these edges.
        passage_offsets: ``(T + 1,)``; passage ``i`` has the edges ``passage_offsets[i]:passage_offsets[i + 1]``.
        query_edges: ``(S * k,)`` edges into ``queries``, by query, then by rank; fewer if edges are dropped.
        query_index: ``(S * k,)`` position in ``sources`` of each of these edges.
        query_offsets: ``(S + 1,)``, likewise.
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

    def part(self, rows: slice) -> Subgraph:
        """The subgraph of consecutive passages; ``rows`` are their positions in ``passages``."""
        bounds = self.passage_offsets[rows.start : rows.stop + 1]
        of_passages = slice(bounds[0], bounds[-1])
        queries, passage_index = np.unique(self.passage_index[of_passages], return_inverse=True)
        counts = self.query_offsets[queries + 1] - self.query_offsets[queries]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        of_queries = np.arange(offsets[-1]) + np.repeat(self.query_offsets[queries] - offsets[:-1], counts)
        sources, query_index = np.unique(self.query_index[of_queries], return_inverse=True)
        return Subgraph(
            passages=self.passages[rows],
            queries=self.queries[queries],
            sources=self.sources[sources],
            passage_edges=self.passage_edges[of_passages],
            passage_index=passage_index,
            passage_offsets=bounds - bounds[0],
            query_edges=self.query_edges[of_queries],
            query_index=query_index,
            query_offsets=offsets,
        )


def edges_into(
    passages: Rows | slice,
    indptr: Rows,
    edges: Rows,
    visible: NDArray[np.bool_] | None,
    stride: int,
    k: int,
    dropped: NDArray[np.bool_] | None = None,
) -> tuple[Rows, Rows]:
    """Edges into some passages ``(E,)``, and the offsets of each passage's edges ``(T + 1,)``.

    Args:
        passages: ``(T,)`` rows, or a slice of rows.
        indptr: ``(m + 1,)``, offsets of the passage-side CSR.
        edges: ``(n * stride,)``, edges of the passage-side CSR.
        visible: ``(n,)`` bool, False for masked queries; None: all are visible.
        stride: Stored passages per query, by which edges are named.
        k: Only edges of rank below ``k`` (from 0) are kept.
        dropped: ``(n * stride,)`` bool, True for edges to leave out; None: none.
    """
    if isinstance(passages, slice):
        bounds = np.asarray(indptr[passages.start : passages.stop + 1])
        names, offsets = np.asarray(edges[bounds[0] : bounds[-1]]), bounds - bounds[0]
    else:
        starts, counts = indptr[passages], indptr[passages + 1] - indptr[passages]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        names = edges[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)]
    kept = None if visible is None else visible[names // stride]
    if k < stride:
        kept = names % stride < k if kept is None else kept & (names % stride < k)
    if dropped is not None:
        kept = ~dropped[names] if kept is None else kept & ~dropped[names]
    if kept is None:
        return names, offsets
    return names[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]


def at_most(edges: Rows, offsets: Rows, most: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Sample at most ``most`` edges into each passage, which bounds the cost of hubs.

    Args:
        edges: ``(E,)``.
        offsets: ``(T + 1,)``.
        most: Maximum number of edges into a passage. Where there are more, a random sample is kept, in order.
        rng: Generator that draws them.

    Returns:
        The sampled edges and their offsets ``(T + 1,)``.
    """
    counts = np.diff(offsets)
    if not len(counts) or counts.max() <= most:
        return edges, offsets
    target = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((rng.random(len(edges)), target))
    place = np.arange(len(edges)) - offsets[target]  # position among its passage's edges
    kept = np.sort(shuffled[place < most])
    return edges[kept], np.concatenate([[0], np.cumsum(np.minimum(counts, most))])


def two_hops(
    passages: Rows,
    neighbors: NDArray[np.uint32],
    indptr: Rows,
    edges: Rows,
    visible: NDArray[np.bool_] | None = None,
    stride: int | None = None,
    *,
    dropped: NDArray[np.bool_] | None = None,
    ignored: NDArray[np.bool_] | None = None,
    sample: tuple[int, np.random.Generator] | None = None,
) -> Subgraph:
    """The subgraph on which eq. 6-10 compute the embeddings of ``passages`` exactly.

    Args:
        passages: ``(T,)`` target rows; a row may occur twice.
        neighbors: ``(n, k)`` passages of each query.
        indptr: ``(m + 1,)``, offsets of the passage-side CSR.
        edges: ``(n * stride,)``, edges of the passage-side CSR, sorted by passage, then by query.
        visible: ``(n,)`` bool, False for masked queries; None: all are visible.
        stride: Stored passages per query, by which edges are named; None: ``k``.
        dropped: ``(n * stride,)`` bool, True for edges that both layers leave out; None: none.
        ignored: ``(n * stride,)`` bool, True for edges that only the passages' layer (eq. 8) leaves out; None: none.
        sample: Maximum number of edges into a passage, and the generator of the sample (:func:`at_most`); None: all
            edges.
    """
    k = neighbors.shape[1]
    stride = stride or k
    left_out = dropped if ignored is None else ignored
    if dropped is not None and ignored is not None:
        left_out = dropped | ignored
    passage_edges, offsets = edges_into(passages, indptr, edges, visible, stride, k, left_out)
    if sample is not None:
        passage_edges, offsets = at_most(passage_edges, offsets, *sample)
    queries, passage_index = np.unique(passage_edges // stride, return_inverse=True)
    # queries attend to all their passages (eq. 6), so that their embeddings do not depend on the sample
    query_edges = (queries[:, None] * stride + np.arange(k)).ravel()
    retrieved, query_offsets = neighbors[queries].astype(np.int64).ravel(), np.arange(len(queries) + 1) * k
    if dropped is not None:
        kept = ~dropped[query_edges]
        query_edges, retrieved = query_edges[kept], retrieved[kept]
        query_offsets = np.concatenate([[0], np.cumsum(kept)])[query_offsets]
    sources, query_index = np.unique(retrieved, return_inverse=True)
    return Subgraph(
        passages=passages,
        queries=queries,
        sources=sources,
        passage_edges=passage_edges,
        passage_index=passage_index,
        passage_offsets=offsets,
        query_edges=query_edges,
        query_index=query_index,
        query_offsets=query_offsets,
    )
