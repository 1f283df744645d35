"""Tokens as late interaction reads them: markers, masks after a question, and no punctuation in a passage."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.prompts import Side
from gnnretrieval.errors import InputError

MARKERS: dict[Side, str] = {"query": "[Q]", "passage": "[D]"}
TokenMatch = Literal["all", "same"]
QUERY_TOKENS = 32  # tokens of a question, masks included, if the settings do not say


class LateTokens(NamedTuple):
    """A text's tokens, and those with a vector.

    Attributes:
        ids: Token ids ``(t,)``, special ones included.
        starts: Places of the tokens with a vector ``(s,)``.
    """

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def kept_ids(self) -> NDArray[np.int64]:
        """Ids of the tokens with a vector ``(s,)``."""
        return self.ids[self.starts]

    @property
    def ends(self) -> NDArray[np.int64]:
        """One past each of :attr:`starts`."""
        return self.starts + 1


class LateTokenizer:
    """Tokenizes as `ColBERT <https://arxiv.org/abs/2004.12832>`_ (3.2).

    A question is ``[CLS] [Q] q1 q2 … [SEP] [MASK] … [MASK]``, always of the same length (*query augmentation*); every
    token has a vector. Unlike in ColBERT's code, all tokens attend to the masks. A passage is
    ``[CLS] [D] p1 p2 … [SEP]``; punctuation has no vector.

    Where only the same tokens are compared (`COIL <https://arxiv.org/abs/2104.07186>`_), ``[SEP]`` has no vector. The
    masks and the markers meet no token of the other side; ``[CLS]`` meets ``[CLS]``. Where a passage has a few vectors
    (`ME-BERT <https://arxiv.org/abs/2005.00181>`_), they are those of its first tokens; a question has that of its
    first, and no masks.

    Args:
        tokenizer: A transformers tokenizer with both markers and a mask token.
        match: ``token_match`` of :class:`gnnretrieval.encoders.settings.EncoderSettings`.
        most: ``passage_vectors`` of the same.

    Raises:
        InputError: The vocabulary lacks a marker or a mask token.
    """

    def __init__(self, tokenizer: Any, match: TokenMatch = "all", most: int | None = None) -> None:
        known = tokenizer.get_vocab()
        if tokenizer.mask_token_id is None or any(marker not in known for marker in MARKERS.values()):
            raise InputError(
                "this checkpoint's vocabulary lacks [Q], [D] or a mask token, which late interaction reads: train one "
                "by encoder train colbert, from a checkpoint with a mask token.",
                tokenizer.name_or_path or None,
            )
        self._tokenizer, self._match, self._most = tokenizer, match, most
        self._marker = {side: known[marker] for side, marker in MARKERS.items()}

    @cached_property
    def _punctuation(self) -> NDArray[np.int64]:
        """Ids of the tokens that are one character of punctuation."""
        encoded = [self._tokenizer.encode(symbol, add_special_tokens=False) for symbol in string.punctuation]
        ids = {ids[0] for ids in encoded if len(ids) == 1} - {self._tokenizer.unk_token_id}
        return np.array(sorted(ids), dtype=np.int64)

    def tokens(self, texts: Sequence[str], side: Side, max_tokens: int) -> list[LateTokens]:
        """Tokens of texts of one side.

        Args:
            texts: The texts, with their prompts.
            side: ``query`` or ``passage``.
            max_tokens: Length of every question (the maximum where it has no masks); maximum length of a passage.
        """
        marker, tokenizer = self._marker[side], self._tokenizer
        tokens = []
        for ids in tokenizer(list(texts), truncation=True, max_length=max_tokens - 1, verbose=False)["input_ids"]:
            place = 1 if ids and ids[0] == tokenizer.cls_token_id else 0
            whole = [*ids[:place], marker, *ids[place:]]
            last = len(whole) - 1
            if self._most is not None:
                first = 1 if side == "query" else min(self._most, len(whole))
                tokens.append(LateTokens(np.array(whole, dtype=np.int64), np.arange(first)))
                continue
            if side == "query":
                whole += [tokenizer.mask_token_id] * (max_tokens - len(whole))
            row = np.array(whole, dtype=np.int64)
            kept = np.arange(len(row)) if side == "query" else np.flatnonzero(~np.isin(row, self._punctuation))
            if self._match == "same" and whole[last] == tokenizer.sep_token_id:
                kept = kept[kept != last]
            tokens.append(LateTokens(row, kept))
        return tokens
