"""Tensors of a subgraph, gathered from the store's arrays."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.nn.gnn_encoder import GraphBatch
from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.platform.devices import as_device
from gnnretrieval.storage.arrays import blocks, gather_rows

_QUERIES = 8192  # queries per block


class GraphTensors:
    """Gathers the tensors of a subgraph from the store's memory maps, without holding a whole array in memory.

    Args:
        store: The graph.
        device: Device of the tensors.
    """

    def __init__(self, store: Graph, device: str | torch.device = "cpu") -> None:
        self.store = store
        self.device = as_device(device)

    def batch(self, passages: Rows, visible: NDArray[np.bool_] | None = None) -> GraphBatch:
        """Tensors of ``passages`` and their two-hop neighbourhood over the ``visible`` queries (None: all)."""
        return self.tensors(self.store.subgraph(passages, visible))

    def tensors(self, subgraph: Subgraph, nodes: tuple[Tensor, Tensor] | None = None) -> GraphBatch:
        """Tensors of a subgraph; features are float32.

        Args:
            subgraph: Nodes and edges.
            nodes: ``h_p`` of its passages ``(T, d)`` and ``h_q`` of its queries ``(S, d)``; None: the stored features.
        """
        loops, width = self.store.edge_arrays, self.store.k
        regular = len(subgraph.query_index) == len(subgraph.queries) * width  # False if edges were dropped
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
        """Features of some edges ``(E, d_e)``, float32; None if the graph has no edge features."""
        if not self.store.edge_dim:
            return None
        return torch.from_numpy(self.store.gather_edge_features(edges)).to(self.device)

    def loops(self, array: NDArray[np.float16] | None, rows: Rows | slice) -> Tensor | None:
        """Stored features of some nodes' self-loops, float32; None if they are learned."""
        return None if array is None else self.gather(array, rows)

    def neighbors(self, index: Rows, offsets: Rows) -> Neighbors:
        """Edges by source index ``(E,)`` and offsets ``(T + 1,)``, on the device."""
        return Neighbors(torch.from_numpy(index).to(self.device), torch.from_numpy(offsets).to(self.device))

    def regular(self, index: Rows) -> Neighbors:
        """Edges with the same number of sources for every target, from an index ``(T, k)``, on the device."""
        return Neighbors.regular(torch.from_numpy(index).to(self.device))


def edge_moments(
    store: Graph, shown: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each edge feature ``(d_e,)`` over the edges of the ``shown`` queries (None: all).

    The deviation of a constant feature is given as 1.
    """
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
