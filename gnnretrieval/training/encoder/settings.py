"""Settings of training encoders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError, nearest
from gnnretrieval.settings import Settings


class LoopSettings(Settings):
    """The training loop of all encoders.

    Attributes:
        epochs: Passes over the training queries.
        batch_size: Queries per step, over all processes together.
        optimizer: ``adamw``, ``adam`` or ``lamb`` (extra ``gnnretrieval[lamb]``).
        learning_rate: Peak learning rate, after linear warm-up and before linear decay to 0.
        weight_decay: Weight decay of matrices; biases and normalisation have none.
        warmup: Share of the steps that warm up.
        gradient_clip: Maximum norm of a gradient.
        dropout: Dropout in training; not given: the checkpoint's own.
        precision: Precision of the matrix products; the updated weights are float32. ``auto``: bfloat16 if the
            processor supports it.
        gradient_cache: Encode a batch twice and keep one part of it in memory at a time: the same update in bounded
            memory.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
        dev_every: Epochs between measurements on dev.
        dev_queries: Maximum number of dev queries to measure.
        patience: Stop after this many measurements without a better one.
        seed: Seed of all random choices.
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
    """A dual-encoder (DPR, RocketQA, PAIR, ANCE, ADORE), or a sentence encoder (DCSR).

    Attributes:
        shared: Share one set of weights between queries and passages; false: two sets.
        pooling: Pooling of token vectors: ``cls``, ``mean``, or ``auto``: the checkpoint's own.
        query_share: Share of the queries to train on, always the same ones. Leave the others for a GNN over this
            encoder: it learns most from queries that the encoder has not seen.
        loss: ``contrastive`` (eq. 2); ``pair``: with the passage-centric loss (PAIR, eq. 6); ``kl`` and
            ``margin-mse``: distillation of the cross-encoder's probabilities in the examples.
        alpha: ``α``, share of the passage-centric loss in ``pair``.
        hard_negatives: Hard negatives per query, sampled from its examples in every epoch.
        refresh_every: Mine hard negatives with the encoder in training, before the first step and again after this many
            steps (ANCE); not given: never.
        refresh_top: Number of passages retrieved by that search, from which negatives are sampled.
        fixed_passages: Train the query encoder alone: passages are encoded once, and a query's negatives are those of
            the whole corpus that score highest for the queries of its batch (ADORE, Zhan et al. 2021).
        fixed_top: Number of passages that ``fixed_passages`` retrieves for each query of a batch.
        pair_tokens: Maximum length of a pair in tokens, if a cross-encoder is trained with the encoder (RocketQAv2).
        in_passage: Number of in-passage negatives, for a sentence encoder (DCSR).
        query_flops: For a sparse encoder (SPLADE), weight of the cost of the queries' terms in the loss; more gives
            fewer terms.
        passage_flops: The same for passages.
        flops_warmup: Share of the steps in which these two weights grow from 0.
        start_terms: Mean number of terms of a passage at the start of training, if the head gives more.
        dev_passages: Number of passages that dev queries are ranked among: the relevant ones, and random others.
        without_answer: For a sentence encoder, a positive passage without an answer: ``skip`` it, or take the sentence
            with the largest ``overlap`` in words.
    """

    shared: bool = False
    pooling: Literal["auto", "cls", "mean"] = "auto"
    query_share: float = Field(1.0, gt=0, le=1)
    loss: str = "contrastive"
    alpha: float = Field(0.1, ge=0, le=1)
    hard_negatives: int = Field(1, ge=0)
    refresh_every: int | None = Field(None, ge=1)
    refresh_top: int = Field(50, ge=1)
    fixed_passages: bool = False
    fixed_top: int = Field(200, ge=1)
    pair_tokens: int = Field(192, ge=8)
    in_passage: int = Field(1, ge=0)
    query_flops: float = Field(3e-4, ge=0)
    passage_flops: float = Field(1e-4, ge=0)
    flops_warmup: float = Field(0.33, ge=0, le=1)
    start_terms: int = Field(400, ge=1)
    dev_passages: int = Field(2000, ge=1)
    without_answer: Literal["skip", "overlap"] = "skip"

    @model_validator(mode="after")
    def _fit_together(self) -> DualEncoderTrainSettings:
        from gnnretrieval.losses.dual_encoder_loss import dual_encoder_losses  # importing torch takes a second

        losses = dual_encoder_losses()
        if self.loss not in losses:
            raise ValueError(f"there is no loss {self.loss!r}.{nearest(self.loss, losses)} Known: {', '.join(losses)}")
        is_distilled = losses[self.loss].is_distilled
        if is_distilled and self.hard_negatives == 0:
            raise ValueError(f"loss = {self.loss} compares a query's own passages: give at least 1 in hard_negatives")
        if self.fixed_passages:
            for name, is_fit in (
                ("shared = false", not self.shared),
                ("loss = contrastive", self.loss == "contrastive"),
                ("no refresh_every", self.refresh_every is None),
            ):
                if not is_fit:
                    raise ValueError(f"fixed_passages trains the query encoder alone: it needs {name}")
        if self.refresh_every is not None:
            if self.hard_negatives == 0:
                raise ValueError("refresh_every mines hard negatives: give at least 1 in hard_negatives")
            if is_distilled:
                raise ValueError(f"loss = {self.loss} needs probabilities, which the negatives of refresh_every lack")
        return self


def require_fit(train: DualEncoderTrainSettings, encoder: EncoderSettings, *, is_joint: bool) -> None:
    """Check that an encoder can be trained by these settings.

    Args:
        train: Settings of training.
        encoder: What the encoder makes: a vector per text, or others.
        is_joint: Whether a cross-encoder is trained with it (RocketQAv2).

    Raises:
        GnnRetrievalError: The two do not fit.
    """
    by_sentences, is_late = encoder.sentences != "none", encoder.late_interaction is not None
    refreshes = train.refresh_every is not None
    if is_joint and (by_sentences or is_late or encoder.sparse or train.fixed_passages):
        raise GnnRetrievalError("joint training with a cross-encoder needs one vector per text, of both sides.")
    if is_joint and (train.loss != "contrastive" or refreshes):
        raise GnnRetrievalError(
            "joint training with a cross-encoder has its own loss, over mined negatives: leave loss and refresh_every "
            "out."
        )
    if train.fixed_passages and (by_sentences or is_late):
        raise GnnRetrievalError(
            "fixed_passages needs one vector per passage: it does not fit an encoder of sentences or tokens."
        )
    if by_sentences and (train.loss != "contrastive" or refreshes):
        raise GnnRetrievalError("a sentence encoder needs loss = contrastive, and cannot train with refresh_every.")
    if is_late and (train.loss == "pair" or refreshes):
        raise GnnRetrievalError(
            "late interaction has several vectors per text: it does not train with loss = pair, refresh_every or "
            "fixed_passages."
        )
    if encoder.sparse and (refreshes or train.fixed_passages):
        raise GnnRetrievalError(
            "a sparse encoder has weights of terms: it does not train with refresh_every or fixed_passages."
        )


class CrossEncoderTrainSettings(LoopSettings):
    """A cross-encoder: a head with one logit on any encoder checkpoint (RocketQA, step 2).

    Attributes:
        loss: ``binary``: each pair alone (RocketQA); ``listwise``: a query's positive among its own negatives (Gao et
            al. 2021, LCE).
        negatives: Negatives per query, sampled from its examples in every epoch.
        max_tokens: Maximum length of a pair in tokens.
        calibrate: Calibrate the probability on the dev pairs after training.
    """

    epochs: int = Field(2, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-5, gt=0)
    loss: Literal["binary", "listwise"] = "binary"
    negatives: int = Field(4, ge=1)
    max_tokens: int = Field(192, ge=8)
    calibrate: bool = True


class ReaderTrainSettings(LoopSettings):
    """A reader: a head for the first and the last token of an answer on any encoder checkpoint.

    Attributes:
        negatives: Negatives per query, sampled from its examples in every epoch; 0: relevant passages alone.
        max_tokens: Maximum length of question and passage together in tokens; a longer passage is read in overlapping
            windows.
        answer_tokens: Maximum length of an answer in tokens.
        dev_passages: Maximum number of passages to read for a dev query: its relevant ones, then its negatives by rank.
    """

    epochs: int = Field(4, ge=1)
    batch_size: int = Field(16, ge=1)
    learning_rate: float = Field(1e-5, gt=0)
    negatives: int = Field(23, ge=0)
    max_tokens: int = Field(256, ge=32)
    answer_tokens: int = Field(30, ge=1)
    dev_passages: int = Field(10, ge=1)


class PretrainSettings(LoopSettings):
    """Pre-training on passages alone; ``dev_queries`` is the maximum number of passages to measure on.

    Attributes:
        objective: ``mlm``: masked language modelling (BERT); ``retromae``: also a decoder that rebuilds the passage
            from its vector (RetroMAE); ``condenser``: also a head that predicts from early states and the vector
            (Condenser); ``cocondenser``: also a contrastive loss of two spans of each passage (coCondenser).
        mask_share: Share of a passage's tokens that the encoder predicts.
        decoder_mask_share: Share of the context that is hidden from each token that the decoder predicts.
        pooling: The vector that the decoder or head reads: ``mean`` of the tokens, or ``cls``. Train with the same
            pooling.
        max_tokens: Maximum length of a passage, or of each span of coCondenser, in tokens.
    """

    epochs: int = Field(8, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-4, gt=0)
    objective: Literal["mlm", "retromae", "condenser", "cocondenser"] = "retromae"
    mask_share: float = Field(0.3, gt=0, lt=1)
    decoder_mask_share: float = Field(0.5, ge=0, le=1)
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: int = Field(128, ge=8)
