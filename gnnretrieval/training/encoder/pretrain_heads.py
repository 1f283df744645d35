"""What pre-training adds to a masked language model, and drops afterwards: RetroMAE's decoder and Condenser's head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_CONDENSER_LAYERS = 2  # Gao and Callan 2021: beside 12 layers of BERT


class EnhancedDecoder(nn.Module):
    """RetroMAE's decoder: one layer of attention from positions to a random part of the context.

    Args:
        width: Width ``d`` of the encoder.
        heads: Number of attention heads.
        positions: Maximum number of tokens.
    """

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(positions, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.forward_layer = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, vectors: Tensor, embedded: Tensor, hidden: Tensor) -> Tensor:
        """States ``(b, t, d)`` that predict each token.

        Args:
            vectors: The texts' vectors ``(b, d)``.
            embedded: Embeddings of their tokens ``(b, t, d)``.
            hidden: ``(b, t, t)`` bool, True where token ``j`` is hidden from token ``i``.
        """
        places = self.positions.weight[: embedded.shape[1]]  # (t, d)
        queries = vectors[:, None] + places
        context = torch.cat([vectors[:, None], embedded + places], dim=1)  # (b, 1 + t, d)
        mask = F.pad(hidden, (1, 0)).repeat_interleave(self.attention.num_heads, 0)  # the vector is always seen
        attended, _ = self.attention(queries, context, context, attn_mask=mask, need_weights=False)
        states = self.norms[0](queries + attended)
        decoded: Tensor = self.norms[1](states + self.forward_layer(states))
        return decoded


class CondenserHead(nn.Module):
    """Condenser's head: two layers over the vector of the last layer and the token states of an early one.

    Args:
        width: Width ``d`` of the encoder.
        heads: Number of attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(_CONDENSER_LAYERS)
        )

    def forward(self, vectors: Tensor, early: Tensor, present: Tensor) -> Tensor:
        """States ``(b, t, d)`` that predict each token.

        Args:
            vectors: The texts' vectors ``(b, d)``; they replace the states of the first token.
            early: Token states of the early layer ``(b, t, d)``.
            present: ``(b, t)`` bool, False at padding.
        """
        states = torch.cat([vectors[:, None], early[:, 1:]], dim=1)
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=~present)
        return states
