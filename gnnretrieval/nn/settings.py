"""Shape of a GNN-encoder."""

from __future__ import annotations

from pydantic import Field

from gnnretrieval.settings import Settings


class GNNEncoderSettings(Settings):
    """Shape of a GNN-encoder.

    Attributes:
        heads: Attention heads of each GAT layer; they share the width.
        dropout: On attention weights, in training.
        gate_start: Value of every filter gate at the start.
    """

    heads: int = Field(1, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    gate_start: float = Field(0.1, gt=0, lt=1)
