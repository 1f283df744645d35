"""Settings of training encoders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gnnretrieval.errors import nearest
from gnnretrieval.settings import Settings


class LoopSettings(Settings):
    """The one loop that every encoder is trained by.

    Attributes:
        epochs: Passes over the training queries.
        batch_size: Queries a step, over all processes together.
        optimizer: ``adamw``, ``adam`` or ``lamb`` (extra ``gnnretrieval[lamb]``).
        learning_rate: Peak of the schedule: linear warm-up, then linear to zero.
        weight_decay: Of matrices; biases and normalisation have none.
        warmup: Share of the steps that warm up.
        gradient_clip: Largest norm of a gradient.
        dropout: In training; not given: the checkpoint's own.
        precision: Of the matrix products; float32 weights are what is updated: ``auto`` is bfloat16 where the processor
            computes in it.
        gradient_cache: Encode a batch twice and hold one part of it at a time: the same update in bounded memory.
        token_budget: Tokens, with padding, that are encoded together.
        dev_every: Epochs between measurements on dev.
        dev_queries: Dev queries that are measured.
        patience: Measurements without a better one before training stops early.
        seed: Of every random choice.
    """

    epochs: int = Field(10, ge=1)
    batch_size: int = Field(128, ge=1)
    optimizer: Literal["adamw", "adam", "lamb"] = "adam"
    learning_rate: float = Field(2e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup: float = Field(0.1, ge=0, lt=1)
    gradient_clip: float = Field(1.0, gt=0)
    dropout: float | None = Field(None, ge=0, lt=1)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    gradient_cache: bool = False
    token_budget: int = Field(4096, ge=1)
    dev_every: int = Field(1, ge=1)
    dev_queries: int = Field(500, ge=1)
    patience: int = Field(3, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)


class DualEncoderTrainSettings(LoopSettings):
    """A dual-encoder: DPR, RocketQA, PAIR, ANCE, or DCSR where the encoder reads passages by sentences.

    Attributes:
        shared: One set of weights for queries and passages; otherwise two, from the same start.
        pooling: Of tokens to a vector: ``cls``, ``mean``, or ``auto``: the checkpoint's own.
        query_share: Share of the queries that is learned from, the same ones in every training; the others are left for
            what is trained over this encoder: a GNN learns most from queries that it did not see.
        loss: ``contrastive`` (eq. 2); ``pair``: with the passage-centric loss (PAIR, eq. 6); ``kl`` (RocketQAv2) and
            ``margin-mse``: from the cross-encoder's probabilities in the examples.
        alpha: ``α``: share of the passage-centric loss in ``pair``.
        hard_negatives: Of each query, drawn anew every epoch from its examples'.
        refresh_every: Hard negatives are mined with the encoder in training, before the first step and every so many
            steps (ANCE); not given: never.
        refresh_top: Passages found by that search, of which negatives are drawn.
        in_passage: Sentences of the positive passage that are negatives, where passages are read by sentences (DCSR).
        dev_passages: Passages that dev queries are looked for among: the relevant ones, and others at random.
        without_answer: What becomes of a query none of whose answers is in its passage, where passages are read by
            sentences: ``skip`` it, or take the sentence with most ``overlap`` in words.
    """

    shared: bool = False
    pooling: Literal["auto", "cls", "mean"] = "auto"
    query_share: float = Field(1.0, gt=0, le=1)
    loss: str = "contrastive"
    alpha: float = Field(0.1, ge=0, le=1)
    hard_negatives: int = Field(1, ge=0)
    refresh_every: int | None = Field(None, ge=1)
    refresh_top: int = Field(50, ge=1)
    in_passage: int = Field(1, ge=0)
    dev_passages: int = Field(2000, ge=1)
    without_answer: Literal["skip", "overlap"] = "skip"

    @model_validator(mode="after")
    def _fit_together(self) -> DualEncoderTrainSettings:
        from gnnretrieval.losses.dual_encoder_loss import dual_encoder_losses  # with torch: a second

        losses = dual_encoder_losses()
        if self.loss not in losses:
            raise ValueError(f"there is no loss {self.loss!r}.{nearest(self.loss, losses)} Known: {', '.join(losses)}")
        is_distilled = losses[self.loss].is_distilled
        if is_distilled and self.hard_negatives == 0:
            raise ValueError(f"loss = {self.loss} compares a query's own passages: give hard_negatives of 1 or more")
        if self.refresh_every is not None:
            if self.hard_negatives == 0:
                raise ValueError("refresh_every mines hard negatives: give hard_negatives of 1 or more")
            if is_distilled:
                raise ValueError(f"loss = {self.loss} needs probabilities, which the negatives of refresh_every lack")
        return self


class CrossEncoderTrainSettings(LoopSettings):
    """A cross-encoder: a binary head over any encoder checkpoint (RocketQA, step 2).

    Attributes:
        loss: ``binary``: every pair by itself, as RocketQA; ``listwise``: a query's positive among its own negatives
            (Gao et al. 2021, LCE).
        negatives: Of each query, drawn anew every epoch from its examples'.
        max_tokens: Longest pair in tokens.
        calibrate: Fit the probability to dev's pairs after training.
    """

    epochs: int = Field(2, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-5, gt=0)
    loss: Literal["binary", "listwise"] = "binary"
    negatives: int = Field(4, ge=1)
    max_tokens: int = Field(192, ge=8)
    calibrate: bool = True
