"""Query-interactive embeddings of passages over the full training graph, streamed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import GraphStore
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.training.graph_tensors import GraphTensors

BLOCK = 8192  # nodes a block


@torch.no_grad()
def gated_contexts(
    model: GNNEncoder,
    store: GraphStore,
    device: str | torch.device = "cpu",
    visible: NDArray[np.bool_] | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For each block of passages: its rows, ``h_p``, and the gated context that is added to it (eq. 6-9), float32.

    Every interactive query is computed once (``n × d`` float32 in memory); passages then go by in blocks.

    Args:
        model: The GNN-encoder, on ``device``.
        store: The graph.
        device: Where to compute.
        visible: ``(n,)`` False for queries masked out of the graph; None: all are in it.
        advance: Called with the number of nodes done, of ``n + m``.
    """
    was_training = model.training
    model.eval()
    tensors = GraphTensors(store, device)
    n, k = store.num_queries, store.k
    interactive = torch.empty((n, store.dimension), device=device)
    edge_features = store.edge_features.reshape(n * k, store.edge_dim)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(n, start + BLOCK))
        sources, index = np.unique(store.neighbors[rows].astype(np.int64).ravel(), return_inverse=True)
        edges = np.arange(start * k, (rows[-1] + 1) * k)
        interactive[start : start + len(rows)] = model.interactive_queries(
            tensors.gather(store.query_features, rows),
            tensors.gather(store.passage_features, sources),
            tensors.neighbors(index, np.arange(len(rows) + 1) * k),
            tensors.gather(edge_features, edges) if store.edge_dim else None,
        )
        advance(len(rows))
    for start in range(0, store.num_passages, BLOCK):
        rows = np.arange(start, min(store.num_passages, start + BLOCK))
        passages = tensors.gather(store.passage_features, rows)
        edges = store.edges[store.indptr[start] : store.indptr[rows[-1] + 1]]
        offsets = store.indptr[start : rows[-1] + 2] - store.indptr[start]
        if visible is not None:
            kept = visible[edges // k]
            edges, offsets = edges[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]
        context = model.gated_context(
            passages,
            interactive,
            tensors.neighbors(edges // k, offsets),
            tensors.gather(edge_features, edges) if store.edge_dim else None,
        )
        yield slice(start, start + len(rows)), passages, context
        advance(len(rows))
    model.train(was_training)
