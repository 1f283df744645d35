"""Settings of encoding."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings


class EncoderSettings(Settings):
    """How texts become vectors.

    Attributes:
        checkpoint: Name or path of the passage encoder ``E_P`` (and of ``E_Q``, where they share weights).
        query_checkpoint: Name or path of ``E_Q`` where it has weights of its own.
        similarity: ``cosine``, ``dot``, or ``auto``: what the checkpoint says, cosine where it says nothing.
        scale: Factor on the similarity in the softmax (1 / temperature); not given: 20 for cosine, 1 for dot product.
        query_prompt: Put before every query; not given: the checkpoint's own, if it has one.
        passage_prompt: Put before every passage; not given: the checkpoint's own, if it has one.
        max_tokens: Longest input in tokens; not given: the checkpoint's own limit.
        query_max_tokens: The same for queries; not given: as passages.
        sentences: How passages are read. ``none``: a vector a passage; ``token``: a vector a sentence, at its
            ``<sent>`` token (DCSR); ``mean``: a vector a sentence, the mean over its tokens.
        precision: Of the weights and the matrix products: ``auto`` is bfloat16 where the processor computes in it.
        token_budget: Tokens in one batch; where texts are padded, with their padding.
        window: Texts that are sorted by length together; also the rows of one shard.
    """

    checkpoint: str = "sentence-transformers/all-MiniLM-L6-v2"
    query_checkpoint: str | None = None
    similarity: Literal["auto", "cosine", "dot"] = "auto"
    scale: float | None = Field(None, gt=0)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    query_max_tokens: int | None = Field(None, ge=1)
    sentences: Literal["none", "token", "mean"] = "none"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)
    window: int = Field(1024, ge=1)


class CrossEncoderSettings(Settings):
    """How pairs of texts are read together.

    Attributes:
        checkpoint: Name or path of a cross-encoder: a sequence classifier with one or two labels.
        max_tokens: Longest pair in tokens, special ones included; the longer text is cut first; not given: the
            checkpoint's own limit.
        precision: Of the weights and the matrix products: ``auto`` is bfloat16 where the processor computes in it.
        token_budget: Tokens in one batch.
    """

    checkpoint: str
    max_tokens: int | None = Field(192, ge=8)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)
