"""From the store's arrays to the tensors of a step."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import GraphStore
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.nn.gnn_encoder import GraphBatch
from gnnretrieval.nn.neighbors import Neighbors


class GraphTensors:
    """Gathers features of a subgraph from the store's memory maps; nothing of the store's size is held.

    Args:
        store: The graph.
        device: Where tensors go.
    """

    def __init__(self, store: GraphStore, device: str | torch.device = "cpu") -> None:
        self.store = store
        self.device = torch.device(device)
        self._edge_features = store.edge_features.reshape(store.num_queries * store.k, store.edge_dim)

    def batch(self, passages: Rows, visible: NDArray[np.bool_] | None = None) -> GraphBatch:
        """``passages`` and their two-hop neighbourhood among the ``visible`` queries (all: None)."""
        return self.tensors(self.store.subgraph(passages, visible))

    def tensors(self, subgraph: Subgraph) -> GraphBatch:
        """The features of a subgraph, float32."""
        edged = self.store.edge_dim > 0
        return GraphBatch(
            passages=self.gather(self.store.passage_features, subgraph.passages),
            queries=self.gather(self.store.query_features, subgraph.queries),
            sources=self.gather(self.store.passage_features, subgraph.sources),
            to_queries=self.neighbors(subgraph.query_index, subgraph.query_offsets),
            to_passages=self.neighbors(subgraph.passage_index, subgraph.passage_offsets),
            query_edge_features=self.gather(self._edge_features, subgraph.query_edges) if edged else None,
            passage_edge_features=self.gather(self._edge_features, subgraph.passage_edges) if edged else None,
        )

    def gather(self, array: NDArray[np.float16], rows: Rows) -> Tensor:
        """Rows of a feature array as float32 on the device."""
        return torch.from_numpy(np.ascontiguousarray(array[rows])).to(self.device).float()

    def neighbors(self, index: Rows, offsets: Rows) -> Neighbors:
        """A CSR on the device."""
        return Neighbors(torch.from_numpy(index).to(self.device), torch.from_numpy(offsets).to(self.device))


def edge_moments(
    edge_features: NDArray[np.float16], shown: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of each edge feature ``(d_e,)`` over the ``shown`` queries (None: all), in one pass."""
    width = edge_features.shape[2]
    total, squares, count = np.zeros(width), np.zeros(width), 0
    for start in range(0, len(edge_features), 65536):
        block = edge_features[start : start + 65536]
        if shown is not None:
            block = block[shown[start : start + 65536]]
        block = block.reshape(len(block) * block.shape[1], width).astype(np.float64)
        total, squares, count = total + block.sum(0), squares + (block**2).sum(0), count + len(block)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
    return mean.astype(np.float32), np.where(deviation > 1e-6, deviation, 1).astype(np.float32)
