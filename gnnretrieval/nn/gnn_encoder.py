"""The GNN-encoder (eq. 6-10)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnretrieval.nn.constant_gate import ConstantGate
from gnnretrieval.nn.filter_gate import FilterGate
from gnnretrieval.nn.gat_layer import GATLayer
from gnnretrieval.nn.graph_layers import graph_layer
from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.pyg_layers import PyGLayer, Shape
from gnnretrieval.nn.settings import GNNEncoderSettings


class GraphBatch(NamedTuple):
    """Passages with their two-hop neighbourhood, as tensors.

    Attributes:
        passages: ``h_p`` of the target passages ``(T, d)``.
        queries: ``h_q`` of the queries adjacent to them ``(S, d)``.
        sources: Cached ``h_p`` of the passages adjacent to those queries ``(U, d)``.
        to_queries: Edges from sources to queries (layer 1), ``E1`` of them.
        to_passages: Edges from queries to passages (layer 2), ``E2`` of them.
        query_edge_features: ``(E1, d_e)`` in the order of ``to_queries``, float16 or float32; None: there are none.
        passage_edge_features: ``(E2, d_e)`` in the order of ``to_passages``, likewise.
        query_loop_features: ``(S, d_l)``, stored edge features of the queries' self-loops, which replace the last
            ``d_l`` of the ``d_e`` learned ones; None: all are learned.
        passage_loop_features: ``(T, d_l)``, the same for the passages' self-loops.
    """

    passages: Tensor
    queries: Tensor
    sources: Tensor
    to_queries: Neighbors
    to_passages: Neighbors
    query_edge_features: Tensor | None
    passage_edge_features: Tensor | None
    query_loop_features: Tensor | None = None
    passage_loop_features: Tensor | None = None


class GNNEncoder(nn.Module):
    r"""Query-interactive passage embeddings of `"GNN-encoder" <https://arxiv.org/abs/2204.08241>`_, eq. 6-10.

    .. math::
        \tilde h_q &= \mathrm{GAT}_1(\{h_p : p \in P_q\} \cup \{h_q\}), &
        h'_q &= W_{pq}[\tilde h_q \,\Vert\, h_q] + b_{pq} \\
        \tilde h_p &= \mathrm{GAT}_2(\{h'_q : q \in Q_p\} \cup \{h_p\}), &
        h'_p &= \lambda\, f_p \odot \tilde h_p + h_p

    It starts close to the dual-encoder and training moves it away from there: :math:`W_s = I`,
    :math:`W_{pq} = [0 \,\Vert\, I]`, uniform attention and a small gate. :math:`\lambda` (``context_scale``) is chosen
    on dev after training; at 0 the output is the dual-encoder's. In the paper it is always 1.

    Edge features are standardised with the moments of the training graph (``edge_mean``, ``edge_deviation``). A
    self-loop's edge feature is a learned vector, one per node type. Where the graph stores features of self-loops, they
    replace the last dimensions of that vector, standardised with the same moments.

    With one layer (the ablation of table 3) eq. 6 and 7 are left out: :math:`h'_q = h_q`.

    Args:
        dimension: Width :math:`d` of the features.
        edge_dim: Width :math:`d_e` of the edge features; 0: the graph has none.
        settings: Heads, layers, gate and dropout.
        layer: Graph layer of both steps: ``gat`` (the paper's), or another name of
            :data:`~gnnretrieval.nn.graph_layers.GRAPH_LAYERS`.

    Raises:
        ValueError: The heads cannot share ``dimension`` equally.
    """

    context_scale: Tensor
    edge_mean: Tensor
    edge_deviation: Tensor

    def __init__(
        self,
        dimension: int,
        edge_dim: int,
        settings: GNNEncoderSettings | None = None,
        layer: str = "gat",
    ) -> None:
        super().__init__()
        self.settings = settings or GNNEncoderSettings()
        self.dimension, self.edge_dim = dimension, edge_dim
        heads = self.settings.heads
        if dimension % heads:
            raise ValueError(f"{heads} heads cannot share a width of {dimension} equally")
        shape = Shape(dimension, heads, edge_dim, self.settings.dropout)
        two, start = self.settings.layers == 2, self.settings.gate_start
        if two:
            self.passages_to_queries = graph_layer(layer, shape)
        self.queries_to_passages = graph_layer(layer, shape)
        if two:
            self.query_update = nn.Linear(2 * dimension, dimension)  # W_pq, b_pq
        learned = self.settings.gate == "filter"
        self.filter_gate = FilterGate(dimension, start) if learned else ConstantGate(start)  # W_qp, b_qp
        if two:
            self.query_loop = nn.Parameter(torch.empty(edge_dim))
        self.passage_loop = nn.Parameter(torch.empty(edge_dim))
        self.register_buffer("context_scale", torch.ones(()))
        self.register_buffer("edge_mean", torch.zeros(edge_dim))
        self.register_buffer("edge_deviation", torch.ones(edge_dim))
        self.reset_parameters()

    @classmethod
    def num_parameters(cls, *shape: Any) -> int:
        """Number of parameters of a GNN-encoder with these arguments, without making them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in cls(*shape).parameters())

    def reset_parameters(self) -> None:
        """Start as close to the identity as the gate allows."""
        for layer in self.children():
            if isinstance(layer, (GATLayer, PyGLayer)):
                layer.reset_parameters()
                layer.start_as_identity()
        with torch.no_grad():
            if self.settings.layers == 2:
                self.query_update.weight.copy_(torch.eye(self.dimension, 2 * self.dimension).roll(self.dimension, 1))
                self.query_update.bias.zero_()
                self.query_loop.zero_()
            self.passage_loop.zero_()
        if isinstance(self.filter_gate, FilterGate):
            self.filter_gate.reset_parameters()

    def forward(self, batch: GraphBatch) -> Tensor:
        """Query-interactive passage embeddings :math:`h'_p` ``(T, d)``."""
        interactive = self.interactive_queries(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        return self.interactive_passages(
            batch.passages, interactive, batch.to_passages, batch.passage_edge_features, batch.passage_loop_features
        )

    def interactive_queries(
        self,
        queries: Tensor,
        sources: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> Tensor:
        """Passage-interactive query embeddings :math:`h'_q` ``(S, d)`` (eq. 6, 7); with one layer :math:`h_q`."""
        if self.settings.layers == 1:
            return queries
        loops = self._loops(self.query_loop, loop_features)
        context = self.passages_to_queries(sources, queries, neighbors, edge_features, loops, self._moments)
        updated: Tensor = self.query_update(torch.cat([context, queries], dim=-1))
        return updated

    def interactive_passages(
        self,
        passages: Tensor,
        queries: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> Tensor:
        """Query-interactive passage embeddings :math:`h'_p` ``(T, d)`` (eq. 8-10), given :math:`h'_q`."""
        gated = self.gated_context(passages, queries, neighbors, edge_features, loop_features)
        return passages + self.context_scale * gated

    def gated_context(
        self,
        passages: Tensor,
        queries: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> Tensor:
        """Gated context :math:`f_p \\odot \\tilde h_p` ``(T, d)`` (eq. 8, 9): what is added to a passage."""
        context = self.passage_context(passages, queries, neighbors, edge_features, loop_features)
        gated: Tensor = self.filter_gate(context, passages)
        return gated

    def passage_context(
        self,
        passages: Tensor,
        queries: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> Tensor:
        """Context :math:`\\tilde h_p` of each passage ``(T, d)`` (eq. 8)."""
        loops = self._loops(self.passage_loop, loop_features)
        queries = F.dropout(queries, self.settings.feature_dropout, self.training)
        context: Tensor = self.queries_to_passages(queries, passages, neighbors, edge_features, loops, self._moments)
        return context

    def query_attention(
        self,
        queries: Tensor,
        sources: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention of eq. 6: weights of the edges ``(E, heads)`` and of the queries' self-loops ``(S, heads)``.

        With one layer a query attends to itself only.
        """
        if self.settings.layers == 1:
            return queries.new_zeros(neighbors.num_edges, 1), queries.new_ones(len(queries), 1)
        loops = self._loops(self.query_loop, loop_features)
        return self.passages_to_queries.attention(sources, queries, neighbors, edge_features, loops, self._moments)

    def passage_attention(
        self,
        passages: Tensor,
        queries: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None,
        loop_features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention of eq. 8: weights of the edges ``(E, heads)`` and of the passages' self-loops ``(T, heads)``."""
        loops = self._loops(self.passage_loop, loop_features)
        return self.queries_to_passages.attention(queries, passages, neighbors, edge_features, loops, self._moments)

    @property
    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.edge_mean, self.edge_deviation

    def _loops(self, learned: Tensor, stored: Tensor | None) -> Tensor:
        """Edge feature of the self-loops: ``(edge_dim,)`` if all is learned, else one per node ``(T, edge_dim)``."""
        if stored is None:
            return learned
        start = self.edge_dim - stored.shape[1]
        if start < 0:
            raise ValueError(f"self-loops have {stored.shape[1]} features, but edges only {self.edge_dim}")
        standardised = (stored - self.edge_mean[start:]) / self.edge_deviation[start:]
        return torch.cat([learned[:start].expand(len(stored), -1), standardised], dim=1)
