"""From the store's arrays to the tensors of a step."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.nn.gnn_encoder import GraphBatch
from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.storage.arrays import blocks, gather_rows

_QUERIES = 8192  # queries a block


class GraphTensors:
    """Gathers features of a subgraph from the store's memory maps; nothing of the store's size is held.

    Args:
        store: The graph.
        device: Where tensors go.
    """

    def __init__(self, store: Graph, device: str | torch.device = "cpu") -> None:
        self.store = store
        self.device = torch.device(device)

    def batch(self, passages: Rows, visible: NDArray[np.bool_] | None = None) -> GraphBatch:
        """``passages`` and their two-hop neighbourhood among the ``visible`` queries (all: None)."""
        return self.tensors(self.store.subgraph(passages, visible))

    def tensors(self, subgraph: Subgraph, nodes: tuple[Tensor, Tensor] | None = None) -> GraphBatch:
        """The features of a subgraph, float32.

        Args:
            subgraph: Which nodes and edges.
            nodes: ``h_p`` of its passages ``(T, d)`` and ``h_q`` of its queries ``(S, d)``; None: the stored ones.
        """
        loops, width = self.store.edge_arrays, self.store.k
        regular = len(subgraph.query_index) == len(subgraph.queries) * width  # not where edges were dropped
        passages, queries = nodes or (
            self.gather(self.store.passage_features, subgraph.passages),
            self.gather(self.store.query_features, subgraph.queries),
        )
        return GraphBatch(
            passages=passages,
            queries=queries,
            sources=self.gather(self.store.source_features, subgraph.sources),
            to_queries=self.regular(subgraph.query_index.reshape(len(subgraph.queries), width))
            if regular
            else self.neighbors(subgraph.query_index, subgraph.query_offsets),
            to_passages=self.neighbors(subgraph.passage_index, subgraph.passage_offsets),
            query_edge_features=self.edge_features(subgraph.query_edges),
            passage_edge_features=self.edge_features(subgraph.passage_edges),
            query_loop_features=self.loops(loops.query_loops, subgraph.queries),
            passage_loop_features=self.loops(loops.passage_loops, subgraph.passages),
        )

    def gather(self, array: NDArray[np.floating], rows: Rows | slice) -> Tensor:
        """Rows of a feature array as float32 on the device."""
        if isinstance(rows, slice):
            return torch.from_numpy(array[rows].astype(np.float32)).to(self.device)
        return torch.from_numpy(gather_rows(array, rows)).to(self.device)

    def edge_features(self, edges: Rows) -> Tensor | None:
        """Features of some edges ``(E, d_e)``, float32; None for a graph without."""
        if not self.store.edge_dim:
            return None
        return torch.from_numpy(self.store.gather_edge_features(edges)).to(self.device)

    def loops(self, array: NDArray[np.float16] | None, rows: Rows | slice) -> Tensor | None:
        """Stored features of some nodes' self-loops, float32; None where they are learned."""
        return None if array is None else self.gather(array, rows)

    def neighbors(self, index: Rows, offsets: Rows) -> Neighbors:
        """A CSR on the device."""
        return Neighbors(torch.from_numpy(index).to(self.device), torch.from_numpy(offsets).to(self.device))

    def regular(self, index: Rows) -> Neighbors:
        """As many sources for every target ``(T, k)``."""
        return Neighbors.regular(torch.from_numpy(index).to(self.device))


def edge_moments(
    store: Graph, shown: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of each edge feature ``(d_e,)`` over the ``shown`` queries (None: all), in one pass."""
    width = store.edge_dim
    total, squares, count = np.zeros(width), np.zeros(width), 0
    shown = store.among(shown)
    queries = np.arange(store.num_queries) if shown is None else np.flatnonzero(shown)
    size = max(1, _QUERIES // max(1, width // 16))
    for part in blocks(len(queries), size):
        edges = (queries[part][:, None] * store.stride + np.arange(store.k)).ravel()
        block = store.gather_edge_features(edges).astype(np.float64)
        total, squares, count = total + block.sum(0), squares + (block**2).sum(0), count + len(block)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
    return mean.astype(np.float32), np.where(deviation > 1e-6, deviation, 1).astype(np.float32)
