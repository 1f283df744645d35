"""Shape of a GNN-encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings


class GNNEncoderSettings(Settings):
    """Shape of a GNN-encoder.

    Attributes:
        heads: Attention heads of each GAT layer; they share the width.
        layers: 2: queries hear their passages, then passages hear queries (the paper); 1: the second alone.
        gate: ``filter``: of each passage and dimension (eq. 9); ``constant``: ``gate_start``, which is not learned.
        gate_start: Value of every filter gate at the start.
        dropout: On attention weights, in training.
        feature_dropout: On the queries' features that passages hear, in training.
    """

    heads: int = Field(1, ge=1)
    layers: int = Field(2, ge=1, le=2)
    gate: Literal["filter", "constant"] = "filter"
    gate_start: float = Field(0.1, gt=0, lt=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    feature_dropout: float = Field(0.0, ge=0, lt=1)
