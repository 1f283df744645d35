"""The two-hop neighbourhood of some passages: all that their embeddings depend on."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
PassageEdges = Literal["all", "hard-negatives"]


class Subgraph(NamedTuple):
    """Passages, the queries that found them, and the passages that those queries found.

    An edge is named by its place in the stored neighbours: ``query row * stride + rank``.

    Attributes:
        passages: ``(T,)`` rows of the target passages, as asked.
        queries: ``(S,)`` rows of the adjacent queries, sorted.
        sources: ``(U,)`` rows of the passages that ``queries`` found, sorted.
        passage_edges: ``(E,)`` edges into ``passages``, sorted by passage (as asked), then by query.
        passage_index: ``(E,)`` position in ``queries`` of each of them.
        passage_offsets: ``(T + 1,)`` where each passage's edges start.
        query_edges: ``(S * k,)`` edges into ``queries``, by query, then by rank; without the dropped ones.
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


def edges_into(
    passages: Rows | slice,
    indptr: Rows,
    edges: Rows,
    visible: NDArray[np.bool_] | None,
    stride: int,
    k: int,
    dropped: NDArray[np.bool_] | None = None,
) -> tuple[Rows, Rows]:
    """The edges into some passages ``(E,)``, and where each passage's start ``(T + 1,)``.

    Args:
        passages: ``(T,)`` rows, or a slice of them.
        indptr: ``(m + 1,)`` of the passage-side CSR.
        edges: ``(n * stride,)`` of the passage-side CSR.
        visible: ``(n,)`` False for queries that are masked out; None: all are in.
        stride: Passages a query, as edges are named.
        k: Ranks from here on are left out.
        dropped: ``(n * stride,)`` True for edges that are left out; None: none are.
    """
    if isinstance(passages, slice):
        bounds = np.asarray(indptr[passages.start : passages.stop + 1])
        found, offsets = np.asarray(edges[bounds[0] : bounds[-1]]), bounds - bounds[0]
    else:
        starts, counts = indptr[passages], indptr[passages + 1] - indptr[passages]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        found = edges[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)]
    kept = None if visible is None else visible[found // stride]
    if k < stride:
        kept = found % stride < k if kept is None else kept & (found % stride < k)
    if dropped is not None:
        kept = ~dropped[found] if kept is None else kept & ~dropped[found]
    if kept is None:
        return found, offsets
    return found[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]


def at_most(edges: Rows, offsets: Rows, most: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """A sample of the edges into each passage, for hubs: edges ``(E,)`` and offsets ``(T + 1,)`` as they were given.

    Args:
        edges: ``(E,)``.
        offsets: ``(T + 1,)``.
        most: Edges of a passage that has more are drawn at random, and keep their order.
        rng: Source of the choice.
    """
    counts = np.diff(offsets)
    if not len(counts) or counts.max() <= most:
        return edges, offsets
    target = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((rng.random(len(edges)), target))
    place = np.arange(len(edges)) - offsets[target]  # among its passage's edges
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
    unheard: NDArray[np.bool_] | None = None,
    sample: tuple[int, np.random.Generator] | None = None,
) -> Subgraph:
    """The subgraph on which eq. 6-10 give the embeddings of ``passages`` exactly.

    Args:
        passages: ``(T,)`` target rows; a row may stand twice.
        neighbors: ``(n, k)`` passages of each query.
        indptr: ``(m + 1,)`` of the passage-side CSR.
        edges: ``(n * stride,)`` of the passage-side CSR: the edges of each passage, sorted.
        visible: ``(n,)`` False for queries that are masked out of the graph; None: all are in it.
        stride: Passages a query, as edges are named; None: ``k``.
        dropped: ``(n * stride,)`` True for edges that both layers lack; None: none.
        unheard: ``(n * stride,)`` True for edges that the passages' layer (eq. 8) lacks too; None: none.
        sample: At most so many edges into each passage, drawn by this generator (:func:`at_most`); None: all.
    """
    k = neighbors.shape[1]
    stride = stride or k
    silent = unheard if dropped is None or unheard is None else dropped | unheard
    silent = dropped if silent is None else silent
    passage_edges, offsets = edges_into(passages, indptr, edges, visible, stride, k, silent)
    if sample is not None:
        passage_edges, offsets = at_most(passage_edges, offsets, *sample)
    queries, passage_index = np.unique(passage_edges // stride, return_inverse=True)
    query_edges = (queries[:, None] * stride + np.arange(k)).ravel()
    found, query_offsets = neighbors[queries].astype(np.int64).ravel(), np.arange(len(queries) + 1) * k
    if dropped is not None:
        kept = ~dropped[query_edges]
        query_edges, found = query_edges[kept], found[kept]
        query_offsets = np.concatenate([[0], np.cumsum(kept)])[query_offsets]
    sources, query_index = np.unique(found, return_inverse=True)
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
