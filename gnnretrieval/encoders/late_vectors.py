"""One vector per token: late interaction (ColBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.late_tokens import LateTokenizer, TokenMatch
from gnnretrieval.encoders.packed_pass import PackedPass
from gnnretrieval.encoders.part_vectors import PartEncoder, part_means
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.similarity import Similarity


class TokenVectors(NamedTuple):
    """Vectors of the tokens of some texts, of length 1 unless only the same tokens are compared.

    Attributes:
        vectors: ``(T, d)`` float32 vectors of all tokens in order.
        counts: ``(texts,)`` number of tokens with a vector in each text, at least 1.
        ids: ``(T,)`` their ids in the vocabulary.
    """

    vectors: NDArray[np.float32]
    counts: NDArray[np.int64]
    ids: NDArray[np.int64]

    def means(self, similarity: Similarity) -> NDArray[np.float32]:
        """Vectors of the texts ``(texts, d)`` float32: the mean of each one's tokens, prepared again."""
        return part_means(self.vectors, self.counts, similarity)


class LateEncoder(PartEncoder):
    """Encodes texts of one side to one vector per token; further arguments as :class:`PartEncoder`.

    The projection is the linear module after the model's pooling, which here projects each token's state.

    Args:
        side: ``query`` or ``passage``.
        max_tokens: Length of every question; maximum length of a passage.
        prompt: Put before every text.
        match: As in :class:`LateTokenizer`.
        most: As there.

    Raises:
        InputError: As :class:`PartEncoder` and :class:`LateTokenizer`.
    """

    def __init__(
        self,
        model: Any,
        packed: PackedPass | None,
        similarity: Similarity,
        checkpoint: Checkpoint,
        side: Side,
        max_tokens: int,
        prompt: str,
        match: TokenMatch = "all",
        most: int | None = None,
    ) -> None:
        super().__init__(model, packed, "token", similarity, checkpoint)
        self.tokenizer = LateTokenizer(model.tokenizer, match, most)
        self.side, self.max_tokens, self.prompt = side, max_tokens, prompt

    def encode(self, texts: Sequence[str], token_budget: int) -> TokenVectors:
        """Vectors of the tokens of some texts, as :meth:`PartEncoder.vectors`."""
        tokens = self.tokenizer.tokens([self.prompt + text for text in texts], self.side, self.max_tokens)
        return TokenVectors(*self.vectors(tokens, token_budget), np.concatenate([text.kept_ids for text in tokens]))
