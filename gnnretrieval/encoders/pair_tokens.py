"""Tokens of pairs of texts, where each text is tokenized once, however many pairs it is in."""

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
    """A tokenizer of pairs with the result of ``tokenizer(first, second, truncation=True)``.

    Args:
        tokenizer: A transformers tokenizer.
        max_tokens: Maximum length of a pair, special tokens included; the longer text is cut first.
        directory: Directory of the checkpoint, named in errors.

    Raises:
        InputError: The tokenizer is not backed by the ``tokenizers`` library.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, directory: Path) -> None:
        self.max_tokens = max_tokens
        self.splitter, self.joiner = splitter_of(tokenizer, directory), splitter_of(tokenizer, directory)
        self.joiner.enable_truncation(max_tokens, strategy="longest_first")
        self.special: int = self.joiner.num_special_tokens_to_add(True)

    def split(self, first: Sequence[str], second: Sequence[str]) -> PairTexts:
        """Tokenize the first and the second texts, without special tokens."""
        return PairTexts(
            self,
            self.splitter.encode_batch(list(first), add_special_tokens=False),
            self.splitter.encode_batch(list(second), add_special_tokens=False),
        )


class PairTexts:
    """Tokenized texts, from which pairs are joined."""

    def __init__(self, tokenizer: PairTokenizer, first: list[Any], second: list[Any]) -> None:
        self.tokenizer, self.first, self.second = tokenizer, first, second

    def lengths(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens ``(pairs,)`` of pairs, given as rows ``(pairs, 2)`` of their texts."""
        first, second = (np.array([len(text) for text in texts], np.int64) for texts in (self.first, self.second))
        whole: NDArray[np.int64] = first[pairs[:, 0]] + second[pairs[:, 1]] + self.tokenizer.special
        return np.minimum(whole, self.tokenizer.max_tokens)

    def join(self, first: int, second: int) -> PairTokens:
        """The pair of the texts at row ``first`` of the first and row ``second`` of the second texts."""
        joined = self.tokenizer.joiner.post_process(self.first[first], self.second[second])
        return PairTokens(np.array(joined.ids, dtype=np.int64), np.array(joined.type_ids, dtype=np.int64))


def splitter_of(tokenizer: Any, directory: str | Path | None) -> Any:
    """A copy of a transformers tokenizer's backend that neither cuts nor pads; the tokenizer keeps its settings.

    Raises:
        InputError: The tokenizer is not backed by the ``tokenizers`` library; the message names ``directory``.
    """
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise InputError("this checkpoint's tokenizer has no tokenizer.json. Save it with one.", directory)
    splitter: Any = Tokenizer.from_str(backend.to_str())
    splitter.no_truncation()
    splitter.no_padding()
    return splitter
