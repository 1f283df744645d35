"""Tokens of a question and a passage for a reader, in windows that overlap where the passage is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.errors import InputError

_OVERLAP = 8  # adjacent windows share 1 / 8 of max_tokens
_QUESTION = 2  # a question has at most 1 / 2 of max_tokens; the rest is cut


class Window(NamedTuple):
    """A question with a part of a passage.

    Attributes:
        pair: Number of the pair of question and passage.
        ids: Token ids ``(tokens,)``, special tokens included.
        types: Token types ``(tokens,)``.
        first: Place of the first token of the passage's text.
        characters: Start and end of each token of the passage's text in that text ``(t, 2)``, in characters.
    """

    pair: int
    ids: NDArray[np.int64]
    types: NDArray[np.int64]
    first: int
    characters: NDArray[np.int64]


class ReaderTokenizer:
    """Tokenizes pairs as ``[CLS] question [SEP] title. text [SEP]``; answers lie in the text.

    Args:
        tokenizer: A transformers tokenizer.
        max_tokens: Maximum length of a window, special tokens included.
        checkpoint: Its checkpoint, named in errors.

    Raises:
        InputError: The tokenizer does not say where its tokens lie in a text.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, checkpoint: Checkpoint) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(
                "this checkpoint's tokenizer has no tokenizer.json. Save it with one.", checkpoint.directory
            )
        self.tokenizer, self.max_tokens = tokenizer, max_tokens

    def windows(self, questions: Sequence[str], passages: Sequence[Passage]) -> list[Window]:
        """Windows of question ``i`` with passage ``i``, in order; a passage without a token of text has none."""
        if not questions:
            return []
        tokens = self.tokenizer(
            self._cut(questions),
            [passage.full_text for passage in passages],
            truncation="only_second",
            max_length=self.max_tokens,
            stride=self.max_tokens // _OVERLAP,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            verbose=False,
        )
        windows = []
        for number, pair in enumerate(tokens["overflow_to_sample_mapping"]):
            before = len(passages[pair].full_text) - len(passages[pair].text)  # characters of the title
            characters = np.array(tokens["offset_mapping"][number], dtype=np.int64) - before
            is_second = np.array([part == 1 for part in tokens.sequence_ids(number)])
            (places,) = np.nonzero(is_second & (characters[:, 1] > 0))
            if len(places):
                ids, types = (
                    np.array(tokens[name][number], dtype=np.int64) for name in ("input_ids", "token_type_ids")
                )
                windows.append(Window(pair, ids, types, int(places[0]), characters[places].clip(min=0)))
        return windows

    def _cut(self, questions: Sequence[str]) -> list[str]:
        tokens = self.tokenizer(
            list(questions),
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=True,
            max_length=self.max_tokens // _QUESTION,
        )
        ends = ([end for _, end in offsets] for offsets in tokens["offset_mapping"])
        return [question[: max(end, default=0)] for question, end in zip(questions, ends, strict=True)]
