"""Settings of a GNN-encoder's layers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings


class GNNEncoderSettings(Settings):
    """Layers of a GNN-encoder.

    Attributes:
        heads: Attention heads of each graph layer with attention; they share the width.
        layers: ``2``: queries attend to their passages, then passages to their queries (the paper); ``1``: only the
            second.
        gate: ``filter``: learned for each passage and dimension (eq. 9); ``constant``: always ``gate_start``.
        gate_start: Initial value of the filter gate; value of the constant gate.
        dropout: Dropout on the weights of a layer with attention, in training.
        feature_dropout: Dropout on the query features that passages attend to, in training.
    """

    heads: int = Field(1, ge=1)
    layers: int = Field(2, ge=1, le=2)
    gate: Literal["filter", "constant"] = "filter"
    gate_start: float = Field(0.1, gt=0, lt=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    feature_dropout: float = Field(0.0, ge=0, lt=1)
