"""Explaining a passage's embedding by attention and gate (eq. 8-10), with the paper's layer and others."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.index.explanations import Attention, Explanation, GraphChange, Neighbor, NoWhatIf
from gnnretrieval.nn.gnn_encoder import GraphBatch
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.model import GNNEncoderModel


class AttentionExplainer:
    """Explains embeddings of all layers except linear: attention (eq. 4, 8) or other weights, and gate (eq. 9, 10).

    Args:
        model: The GNN-encoder.
        store: The graph as the model sees it.
    """

    def __init__(self, model: GNNEncoderModel, store: Graph) -> None:
        self.store = store
        self.model = model.load()
        self._tensors = GraphTensors(store)
        self._texts = store.texts()

    @torch.no_grad()
    def explain(self, row: int, most: int = 5) -> Explanation:
        """Explain the embedding of the passage at ``row``, with its ``most`` heaviest questions."""
        subgraph = self.store.subgraph(np.array([row]))
        batch = self._tensors.tensors(subgraph)
        attention, own, context, gate = self._second_layer(batch)
        after = batch.passages + self.model.context_scale * gate * context
        weights = attention.mean(1)  # (E,)
        neighbors = []
        for edge in weights.argsort(descending=True, stable=True)[:most].tolist():
            query = self._texts.query(int(subgraph.queries[subgraph.passage_index[edge]]))
            labelled = (self._texts.relevance(query.row, row) or 0) > 0
            neighbors.append(Neighbor(query.id, query.text, float(weights[edge]), labelled))
        return Explanation(
            neighbors=neighbors,
            own_attention=float(own.mean()),
            mean_gate=float(gate.mean()),
            context_scale=float(self.model.context_scale),
            shift=float(torch.cosine_similarity(batch.passages, after).mean()),
        )

    def nearest_question(self, row: int, vector: NDArray[np.floating]) -> int | None:
        """None: these layers make one vector a passage."""
        return None

    @torch.no_grad()
    def attention_of_passage(self, row: int) -> Attention:
        """Attention of layer 2: weight of each question in the passage at ``row``."""
        subgraph = self.store.subgraph(np.array([row]))
        attention, own, _, gate = self._second_layer(self._tensors.tensors(subgraph))
        queries = subgraph.queries[subgraph.passage_index]
        weights = {
            self._texts.query(query).id: weight
            for query, weight in zip(queries.tolist(), attention.mean(1).tolist(), strict=True)
        }
        return Attention(weights, float(own.mean()), float(gate.mean()))

    @torch.no_grad()
    def attention_of_query(self, row: int) -> Attention:
        """Attention of layer 1: weight of each passage in the query at ``row``, which must be in the graph."""
        neighbors = self.store.neighbors[row].astype(np.int64)
        sources, index = np.unique(neighbors, return_inverse=True)
        k, none = len(neighbors), np.empty(0, dtype=np.int64)
        subgraph = Subgraph(
            passages=none,
            queries=np.array([row]),
            sources=sources,
            passage_edges=none,
            passage_index=none,
            passage_offsets=np.zeros(1, dtype=np.int64),
            query_edges=row * self.store.stride + np.arange(k),
            query_index=index,
            query_offsets=np.array([0, k]),
        )
        batch = self._tensors.tensors(subgraph)
        attention, own = self.model.query_attention(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        weights = {
            self._texts.passage(passage).id: weight
            for passage, weight in zip(neighbors.tolist(), attention.mean(1).tolist(), strict=True)
            if passage not in self.store.hidden
        }
        return Attention(weights, float(own.mean()), None)

    no_what_if: str | None = None

    def vectors_if(self, rows: Rows, change: GraphChange) -> NDArray[np.float32]:
        """Vectors ``(r, d)`` of some passages after a change without added questions."""
        if len(change.vectors):
            raise NoWhatIf(
                "A typed question has no edge features, which this layer reads: tick questions off, or change λ."
            )
        visible = np.ones(self.store.num_queries, dtype=bool)
        visible[change.without] = False
        order = np.argsort(rows, kind="stable")
        parts = gated_contexts(self.model, self.store, visible=self.store.among(visible), only=rows[order])
        scale = change.scale * self.model.context_scale
        blocks = [self.store.similarity.prepare(passages + scale * context) for _, passages, context in parts]
        vectors = np.empty((len(rows), self.store.dimension), dtype=np.float32)
        vectors[order] = torch.cat(blocks).numpy()
        return vectors

    def with_questions(
        self, rows: Rows, scores: NDArray[np.float32], change: GraphChange, vector: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The scores: these layers make one vector a passage."""
        return scores

    def _second_layer(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Attention of eq. 8 (edges ``(E, heads)``, self-loops ``(T, heads)``), context and gate ``(T, d)``."""
        model = self.model
        queries = model.interactive_queries(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        layer = (batch.passages, queries, batch.to_passages, batch.passage_edge_features, batch.passage_loop_features)
        attention, own = model.passage_attention(*layer)
        context = model.passage_context(*layer)
        return attention, own, context, model.filter_gate.gate(context, batch.passages)
