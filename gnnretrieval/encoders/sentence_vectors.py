"""One vector per sentence, contextual because the whole passage is read at once (DCSR, 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.sentence_split import Span
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.packed_pass import PackedPass
from gnnretrieval.encoders.part_vectors import PartEncoder, part_means
from gnnretrieval.encoders.sentence_tokens import SENT, SentenceTokenizer
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError


class SentenceVectors(NamedTuple):
    """Vectors of the sentences of some passages.

    Attributes:
        vectors: ``(S, d)`` float32 vectors of all sentences in order, prepared by the similarity.
        counts: ``(passages,)`` number of sentences of each passage, at least 1.
        spans: Start and end of the sentences' characters in each passage.
        cut: Number of sentences entirely beyond the limit of tokens.
    """

    vectors: NDArray[np.float32]
    counts: NDArray[np.int64]
    spans: list[list[Span]]
    cut: int

    def means(self, similarity: Similarity) -> NDArray[np.float32]:
        """Vectors of the passages ``(passages, d)`` float32: the mean of each one's sentences, prepared again."""
        return part_means(self.vectors, self.counts, similarity)


class SentenceEncoder(PartEncoder):
    """Encodes passages to one vector per sentence; further arguments as :class:`PartEncoder`.

    Args:
        at: ``token``: a sentence's vector is the state at its ``<sent>``; ``mean``: the mean over its tokens.
        prompt: Put before every passage.

    Raises:
        InputError: As :class:`PartEncoder`, or ``at`` is ``token`` and the vocabulary has no ``<sent>``.
    """

    def __init__(
        self,
        model: Any,
        packed: PackedPass | None,
        at: Literal["token", "mean"],
        similarity: Similarity,
        prompt: str,
        checkpoint: Checkpoint,
    ) -> None:
        super().__init__(model, packed, at, similarity, checkpoint)
        self.tokenizer = SentenceTokenizer(model.tokenizer, model.max_seq_length, prompt)
        if at == "token" and self.tokenizer.marker is None:
            raise InputError(
                f"this checkpoint's vocabulary has no {SENT}, at which sentences = token reads them: train one that "
                "has, or give sentences = mean.",
                checkpoint.directory,
            )

    def encode(
        self, texts: Sequence[str], token_budget: int, spans: Sequence[list[Span]] | None = None
    ) -> SentenceVectors:
        """Vectors of the sentences of some passages, as :meth:`PartEncoder.vectors`.

        Args:
            texts: Full texts of the passages.
            token_budget: Maximum number of tokens in a batch.
            spans: Start and end of the sentences' characters in each text; None: the texts are split.
        """
        tokens = self.tokenizer.tokens(texts, spans)
        return SentenceVectors(
            *self.vectors(tokens, token_budget),
            [passage.spans for passage in tokens],
            sum(passage.cut for passage in tokens),
        )
