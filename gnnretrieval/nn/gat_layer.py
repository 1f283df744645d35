"""Graph attention with edge features, folded and fused (eq. 3-5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnretrieval.nn.edge_fold import fold_edges
from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.segment_softmax import at_least_float32, edge_scores, segment_softmax
from gnnretrieval.nn.weighted_sum import weighted_sum


class GATLayer(nn.Module):
    r"""Graph attention layer of `"GNN-encoder" <https://arxiv.org/abs/2204.08241>`_, eq. 3-5, after `"Graph Attention
    Networks" <https://arxiv.org/abs/1710.10903>`_.

    .. math::
        e_{ij} = \mathbf{a}^{\top} [W_t h_i \,\Vert\, W_s h_j \,\Vert\, W_e h_{i-j}], \qquad
        \alpha_{ij} = \mathrm{softmax}_j(\mathrm{LeakyReLU}(e_{ij})), \qquad
        \tilde{h}_i = \sum_{j \in \mathcal{N}_i \cup \{i\}} \alpha_{ij} W_s h_j

    It equals :class:`torch_geometric.nn.GATConv` with a bipartite input and uses its parameter names, so a state dict
    loads into either: ``lin_src`` = :math:`W_s`, ``lin_dst`` = :math:`W_t`, ``lin_edge`` = :math:`W_e`, and
    :math:`\mathbf{a}` is ``att_dst``, ``att_src`` and ``att_edge``.

    It is cheaper than ``GATConv``: each attention vector is folded into its projection first, and the weighted sum is
    one fused gather and sum, projected afterwards. Neither pass makes an ``(E, d)`` tensor. Attention and sums are
    float32, whatever the weights' type or autocast. Gradients are the same bytes on every run.

    Args:
        in_channels: Width of source and target features.
        out_channels: Width of one head's output.
        heads: Attention heads; their outputs are concatenated.
        edge_dim: Width of the edge features; None: the graph has none.
        negative_slope: Slope of the LeakyReLU below 0.
        dropout: Probability of dropping an attention weight in training.

    Shapes:
        - source features ``(S, in_channels)``, target features ``(T, in_channels)``
        - edge features ``(E, edge_dim)``, any floating type (the store holds float16)
        - edge feature of the self-loops ``(edge_dim,)`` or ``(T, edge_dim)``
        - edge moments: mean and standard deviation ``(edge_dim,)`` that standardise the edge features, but not the
          self-loops'; None: no standardisation
        - output ``(T, heads * out_channels)``
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        edge_dim: int | None = None,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.edge_dim, self.negative_slope, self.dropout = edge_dim, negative_slope, dropout
        self.lin_src = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.lin_dst = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        if edge_dim is not None:
            self.lin_edge = nn.Linear(edge_dim, heads * out_channels, bias=False)
            self.att_edge = nn.Parameter(torch.empty(1, heads, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot initialisation, as in ``GATConv``."""
        for name, parameter in self.named_parameters():
            nn.init.xavier_uniform_(parameter if name.startswith("lin") else parameter[0])

    def start_as_identity(self) -> None:
        """Start with :math:`W_s = I` and uniform attention: each head returns the mean of its slice of the features."""
        with torch.no_grad():
            nn.init.eye_(self.lin_src.weight)
            for attention in (self.att_src, self.att_dst, *([self.att_edge] if self.edge_dim is not None else [])):
                attention.zero_()

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None = None,
        loop_feature: Tensor | None = None,
        edge_moments: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Context :math:`\\tilde h` of each target ``(T, heads * out_channels)``."""
        attention, loop_attention = self.attention(source, target, neighbors, edge_features, loop_feature, edge_moments)
        attention = F.dropout(attention, self.dropout, self.training)
        loop_attention = F.dropout(loop_attention, self.dropout, self.training)
        wide_source, wide_target = at_least_float32(source), at_least_float32(target)
        heads = []
        for head, projection in enumerate(self._per_head(self.lin_src)):
            weights, loop_weights = attention[:, head].contiguous(), loop_attention[:, head].contiguous()
            context = weighted_sum(wide_source, wide_target, weights, loop_weights, neighbors)  # (T, in_channels)
            heads.append(context.to(source.dtype) @ projection.T)
        return torch.cat(heads, dim=-1)

    def attention(
        self,
        source: Tensor,
        target: Tensor,
        neighbors: Neighbors,
        edge_features: Tensor | None = None,
        loop_feature: Tensor | None = None,
        edge_moments: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention :math:`\\alpha` (eq. 4) of the edges ``(E, heads)`` and of the self-loops ``(T, heads)``."""
        with torch.autocast(source.device.type, enabled=False):
            source, target = at_least_float32(source), at_least_float32(target)
            fold_source = self._fold(self.lin_src, self.att_src)  # (in_channels, heads)
            folds = torch.cat([fold_source, self._fold(self.lin_dst, self.att_dst)], dim=1)
            as_source, as_target = torch.split(target @ folds, self.heads, dim=1)  # (T, heads) each
            logits = edge_scores(source @ fold_source, as_target, neighbors)  # (E, heads)
            loop_logits = as_source + as_target  # (T, heads)
            if self.edge_dim is not None:
                if edge_features is None or loop_feature is None:
                    raise ValueError("a layer with edge_dim needs edge_features and loop_feature")
                fold_edge = self._fold(self.lin_edge, self.att_edge)  # (edge_dim, heads)
                loop_logits = loop_logits + at_least_float32(loop_feature) @ fold_edge
                mean, deviation = edge_moments or (None, None)
                if deviation is not None:  # ((h - mean) / deviation) @ fold = (h - mean) @ (fold / deviation)
                    fold_edge = fold_edge / deviation[:, None]
                logits = logits + fold_edges(edge_features, fold_edge, mean)
            slope = self.negative_slope
            return segment_softmax(F.leaky_relu(logits, slope), F.leaky_relu(loop_logits, slope), neighbors)

    def _per_head(self, linear: nn.Linear) -> Tensor:
        return linear.weight.view(self.heads, self.out_channels, -1)

    def _fold(self, linear: nn.Linear, attention: Tensor) -> Tensor:
        """``W^T a`` of each head ``(in, heads)``: multiplies a feature directly, without projecting it first."""
        weight, attention = at_least_float32(self._per_head(linear)), at_least_float32(attention[0])
        return torch.einsum("hci,hc->ih", weight, attention)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads}, "
            f"edge_dim={self.edge_dim})"
        )
