"""Settings of training a GNN-encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.graph.mask import MaskUnit
from gnnretrieval.nn.settings import GNNEncoderSettings
from gnnretrieval.settings import Settings

Candidates = Literal["auto", "corpus", "batch"]
CORPUS_CANDIDATES = 10_000  # passages up to which "auto" scores a batch against the whole corpus


class TrainSettings(Settings):
    """Masked graph training (Algorithm 1) with a frozen dual-encoder.

    Attributes:
        k: Only each query's first k passages; not given: all that the graph has.
        epochs: Epochs; each splits the training queries anew.
        mask_ratio: ``β``: share of the queries that an epoch masks and trains on.
        mask_unit: What is masked together: ``query`` (the paper), ``passage``, or ``mixed``.
        batch_size: Masked queries a step.
        learning_rate: Peak of the schedule: linear warm-up, then linear to zero.
        warmup: Share of the steps that warm up.
        weight_averaging: Decay of the exponential average of the weights, which is what is measured and kept; 0: none.
        gradient_clip: Largest norm of a gradient.
        candidates: What a query's positive is told from: ``corpus``: every passage; ``batch``: the batch's positives
            and hard negatives, as the paper; ``auto``: the corpus up to 10,000 passages and 50,000 queries.
        hard_negatives: Of each query, with ``candidates = batch``: neighbours that are not relevant.
        scale: Factor on the similarity in the softmax; not given: the encoder's own.
        context_scales: ``λ`` to choose from on dev; 0, the dual-encoder, is always among them.
        patience: Epochs without a better one on dev before training stops early.
        seed: Of every random choice.
        encoder: Shape of the GNN-encoder.
    """

    k: int | None = Field(None, ge=1)
    epochs: int = Field(40, ge=1)
    mask_ratio: float = Field(0.2, gt=0, le=0.9)
    mask_unit: MaskUnit = "mixed"
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.1, ge=0, lt=1)
    weight_averaging: float = Field(0.98, ge=0, lt=1)
    gradient_clip: float = Field(1.0, gt=0)
    candidates: Candidates = "auto"
    hard_negatives: int = Field(4, ge=0)
    scale: float | None = Field(None, gt=0)
    context_scales: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
    patience: int = Field(12, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    encoder: GNNEncoderSettings = GNNEncoderSettings()
