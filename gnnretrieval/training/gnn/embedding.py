"""Query-interactive passage embeddings over the full graph, computed in blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.storage.arrays import ROWS_RESIDENT, ArrayWriter, blocks, gather_rows, release
from gnnretrieval.training.gnn.graph_tensors import GraphTensors

MEMORY = 2**30  # bytes that a pass over a store may use besides the model
_BLOCK = 8192  # maximum number of nodes per block


@torch.no_grad()
def gated_contexts(
    model: GNNEncoder,
    store: Graph,
    device: str | torch.device = "cpu",
    visible: NDArray[np.bool_] | None = None,
    advance: Callable[[int], None] = lambda count: None,
    *,
    only: Rows | None = None,
    memory: int = MEMORY,
    scratch: Path | None = None,
) -> Iterator[tuple[Rows, Tensor, Tensor]]:
    """Compute the gated contexts of passages (eq. 6-9), block by block.

    Each interactive query ``h'_q`` is computed once. They stay in memory if they take at most half of the budget, and
    go to a file otherwise. Pages of the store's arrays are released after use, so resident memory stays within the
    budget for a store of any size.

    Args:
        model: The GNN-encoder, on ``device``.
        store: The graph.
        device: Where to compute.
        visible: ``(n,)`` bool, False for masked queries; None: all are visible.
        advance: Called with the number of nodes done, out of :func:`nodes_to_embed`.
        only: Sorted rows of the passages to compute; None: all.
        memory: The budget in bytes.
        scratch: Directory of the file; None: the system's temporary directory.

    Yields:
        Rows of a block ``(b,)``, ``h_p`` ``(b, d)`` and the gated context ``(b, d)``, float32.
    """
    was_training = model.training
    model.eval()
    tensors = GraphTensors(store, device)
    wanted = None if only is None else np.unique(store.found_by(only, visible)[0] // store.stride)
    with _interactive_queries(model, tensors, wanted, advance, memory, scratch) as interactive:
        for rows in _passage_blocks(store, only, memory):
            edges, offsets = store.found_by(rows, visible)
            queries = edges // store.stride
            if wanted is not None:
                queries = np.searchsorted(wanted, queries)
            if isinstance(interactive, Tensor):
                sources, neighbors = interactive, tensors.neighbors(queries, offsets)
            else:
                # memory-mapped: read only the rows that this block needs
                needed, index = np.unique(queries, return_inverse=True)
                sources = torch.from_numpy(gather_rows(interactive, needed)).to(tensors.device)
                neighbors = tensors.neighbors(index, offsets)
                release(interactive)
            here = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            passages = tensors.gather(store.passage_features, rows)
            loops = tensors.loops(store.edge_arrays.passage_loops, rows)
            context = model.gated_context(passages, sources, neighbors, tensors.edge_features(edges), loops)
            release(store.passage_features, store.edges, store.indptr)
            yield here, passages, context
            advance(len(here))
    model.train(was_training)


@contextmanager
def _interactive_queries(
    model: GNNEncoder,
    tensors: GraphTensors,
    wanted: Rows | None,
    advance: Callable[[int], None],
    memory: int,
    scratch: Path | None,
) -> Iterator[Tensor | NDArray[np.float32]]:
    """``h'_q`` of the ``wanted`` queries (None: all) ``(n, d)``: on the device, or memory-mapped if they are many."""
    n, d = tensors.store.num_queries if wanted is None else len(wanted), tensors.store.dimension
    if 4 * n * d <= memory // 2:
        interactive = torch.empty((n, d), device=tensors.device)
        for part, vectors in _interactive_blocks(model, tensors, wanted, memory):
            interactive[part] = vectors
            advance(len(vectors))
        yield interactive
        return
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        path = Path(place) / "interactive_queries.npy"
        with ArrayWriter(path, (n, d), np.float32) as writer:
            for _, vectors in _interactive_blocks(model, tensors, wanted, memory):
                writer.write(vectors.cpu().numpy())
                advance(len(vectors))
        yield np.load(path, mmap_mode="r")


def _interactive_blocks(
    model: GNNEncoder, tensors: GraphTensors, wanted: Rows | None, memory: int
) -> Iterator[tuple[slice, Tensor]]:
    store = tensors.store
    per_query = 4 * store.k * (2 * store.dimension + 2 * store.edge_dim) + 24 * store.dimension  # bytes
    count = store.num_queries if wanted is None else len(wanted)
    for part in blocks(count, max(1, min(_BLOCK, memory // 4 // per_query))):
        rows = np.arange(part.start, part.stop) if wanted is None else wanted[part]
        sources, index = np.unique(store.neighbors[rows].astype(np.int64), return_inverse=True)
        edges = (rows[:, None] * store.stride + np.arange(store.k)).ravel()
        yield (
            part,
            model.interactive_queries(
                tensors.gather(store.query_features, part if wanted is None else rows),
                tensors.gather(store.source_features, sources),
                tensors.regular(index.reshape(len(rows), store.k)),
                tensors.edge_features(edges),
                tensors.loops(store.edge_arrays.query_loops, rows),
            ),
        )
        release(store.neighbors, store.query_features, store.source_features, store.edge_arrays.cheap)


def _passage_blocks(store: Graph, only: Rows | None, memory: int) -> Iterator[slice | Rows]:
    """Blocks of passages: the vectors of a block, and the features of its edges, take about a quarter of the budget."""
    most = max(1, min(_BLOCK, memory // 4 // (40 * store.dimension)))
    edges = max(ROWS_RESIDENT, memory // 4 // (4 * store.dimension + 8 * store.edge_dim + 48))
    start, count = 0, store.num_passages if only is None else len(only)
    while start < count:
        stop = min(count, start + most)
        first = np.arange(start, stop) if only is None else only[start:stop]
        # a block of passages with many edges ends earlier
        counts = store.indptr[first + 1] - store.indptr[first]
        stop = start + max(1, int(np.searchsorted(np.cumsum(counts), edges, side="right")))
        yield slice(start, stop) if only is None else only[start:stop]
        start = stop


def nodes_to_embed(store: Graph, only: Rows | None = None) -> int:
    """Number of nodes that :func:`gated_contexts` computes."""
    if only is None:
        return store.num_queries + store.num_passages
    return len(np.unique(store.found_by(only)[0] // store.stride)) + len(only)
