"""Tokens of pairs of texts, where every text is split once however many pairs it is in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import InputError


class PairTokens(NamedTuple):
    """Token ids and token types ``(tokens,)`` of one pair, special tokens included."""

    ids: NDArray[np.int64]
    types: NDArray[np.int64]


class PairTokenizer:
    """A tokenizer of pairs that gives what ``tokenizer(first, second, truncation=True)`` does.

    Args:
        tokenizer: A transformers tokenizer.
        max_tokens: Longest pair, special tokens included; the longer text is cut first.
        directory: Its checkpoint's, named in errors.

    Raises:
        InputError: the tokenizer is not one of the ``tokenizers`` library.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, directory: Path) -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise InputError("this checkpoint's tokenizer has no tokenizer.json. Save it with one.", directory)
        self.max_tokens = max_tokens
        self.splitter: Any = Tokenizer.from_str(backend.to_str())  # copies: the tokenizer's own settings stay
        self.splitter.no_truncation()
        self.splitter.no_padding()
        self.joiner: Any = Tokenizer.from_str(self.splitter.to_str())
        self.joiner.enable_truncation(max_tokens, strategy="longest_first")
        self.special: int = self.joiner.num_special_tokens_to_add(True)

    def split(self, first: Sequence[str], second: Sequence[str]) -> PairTexts:
        """The texts' tokens, without special ones."""
        return PairTexts(
            self,
            self.splitter.encode_batch(list(first), add_special_tokens=False),
            self.splitter.encode_batch(list(second), add_special_tokens=False),
        )


class PairTexts:
    """Texts split to tokens, from which pairs are joined."""

    def __init__(self, tokenizer: PairTokenizer, first: list[Any], second: list[Any]) -> None:
        self.tokenizer, self.first, self.second = tokenizer, first, second

    def lengths(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of every pair ``(pairs,)``, from its texts' rows ``(pairs, 2)``."""
        first, second = (np.array([len(text) for text in texts], np.int64) for texts in (self.first, self.second))
        whole: NDArray[np.int64] = first[pairs[:, 0]] + second[pairs[:, 1]] + self.tokenizer.special
        return np.minimum(whole, self.tokenizer.max_tokens)

    def join(self, first: int, second: int) -> PairTokens:
        """The pair of the ``first`` and the ``second`` text, by row."""
        joined = self.tokenizer.joiner.post_process(self.first[first], self.second[second])
        return PairTokens(np.array(joined.ids, dtype=np.int64), np.array(joined.type_ids, dtype=np.int64))
