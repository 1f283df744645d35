"""Tokens of passages as DCSR reads them: a whole passage, with the places of its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.sentence_split import Span, split_sentences
from gnnretrieval.encoders.pair_tokens import splitter_of
from gnnretrieval.errors import InputError

SENT = "<sent>"

Ids = NDArray[np.int64]


class SentenceTokens(NamedTuple):
    """A passage's tokens; those of sentence ``i`` are ``ids[starts[i]:ends[i]]``.

    Attributes:
        ids: ``(t,)`` token ids, special ones included.
        starts: ``(s,)`` first token of each sentence: its ``<sent>``, if the vocabulary has one.
        ends: ``(s,)`` one past the last token of each sentence.
        spans: Start and end of each sentence's characters in the text.
        cut: Number of sentences entirely beyond the limit of tokens; the other attributes leave them out.
    """

    ids: Ids
    starts: Ids
    ends: Ids
    spans: list[Span]
    cut: int


class SentenceTokenizer:
    """Tokenizes passages as ``[CLS] <sent> s1 <sent> s2 … [SEP]`` (`DCSR <https://arxiv.org/abs/2110.07524>`_, 3.2).

    ``[CLS]`` and ``[SEP]`` are the tokenizer's own special tokens. Without ``<sent>`` in the vocabulary, the tokens are
    those of ``tokenizer(text, truncation=True, max_length=max_tokens)``.

    Args:
        tokenizer: A transformers tokenizer.
        max_tokens: Maximum length of a passage, special tokens included; None: no limit.
        prompt: Put before every text. Its tokens belong to the first sentence, its characters to no span.

    Raises:
        InputError: The tokenizer is not backed by the ``tokenizers`` library, or ``max_tokens`` leaves no room for a
            token of a sentence.
    """

    def __init__(self, tokenizer: Any, max_tokens: int | None, prompt: str = "") -> None:
        self._splitter = splitter_of(tokenizer, tokenizer.name_or_path or None)
        framed = self._splitter.encode("a")
        own = np.flatnonzero(np.array(framed.special_tokens_mask) == 0)
        self._before, self._after = framed.ids[: own[0]], framed.ids[own[-1] + 1 :]
        self.marker = marker_of(tokenizer)
        self.prompt = prompt
        frame, least = len(self._before) + len(self._after), 1 if self.marker is None else 2
        self._most = max_tokens - frame if max_tokens is not None else None  # tokens between the special ones
        if self._most is not None and self._most < least:
            raise InputError(f"max_tokens is {max_tokens}: give at least {frame + least}, for a token of a sentence.")

    def tokens(self, texts: Sequence[str], spans: Sequence[list[Span]] | None = None) -> list[SentenceTokens]:
        """Tokens of passages; each has at least one sentence, which may be empty.

        Args:
            texts: Full texts of the passages.
            spans: Start and end of the sentences' characters in each text; None: those of :func:`split_sentences`.
        """
        encoded = self._splitter.encode_batch([self.prompt + text for text in texts], add_special_tokens=False)
        if spans is None:
            spans = [split_sentences(text) for text in texts]
        return [self._tokens(*passage) for passage in zip(texts, spans, encoded, strict=True)]

    def _tokens(self, text: str, spans: list[Span], encoding: Any) -> SentenceTokens:
        spans = spans or [(0, len(text))]
        first = np.array([start for start, _ in spans], dtype=np.int64) + len(self.prompt)
        lasts = np.array([end for _, end in encoding.offsets], dtype=np.int64) - 1  # each token's last character
        # A token belongs to the sentence of its last character; its first character may be the space before it.
        owner = np.maximum.accumulate(np.searchsorted(first, lasts, side="right") - 1).clip(0)  # (tokens,)
        ids = np.array(encoding.ids, dtype=np.int64)
        present = np.unique(owner)  # sentences with tokens
        begins = np.searchsorted(owner, present)
        if self.marker is not None:
            if not len(present):  # an empty text still has a sentence: its marker alone
                present = begins = np.zeros(1, dtype=np.int64)
            ids = np.insert(ids, begins, self.marker)
            begins = begins + np.arange(len(begins))
        ends = np.append(begins[1:], len(ids)) if len(begins) else begins
        limit = len(ids) if self._most is None else self._most
        kept = begins + (0 if self.marker is None or len(ids) == 1 else 1) < limit  # not only their marker
        starts, ends = begins[kept], np.minimum(ends[kept], limit)
        ids = ids[: int(ends[-1]) if len(ends) else 0]
        framed = np.concatenate([self._before, ids, self._after]).astype(np.int64)
        if not len(starts):  # no token of a sentence: the special tokens are the sentence
            return SentenceTokens(framed, np.zeros(1, np.int64), np.array([len(framed)]), [(0, len(text))], 0)
        return SentenceTokens(
            framed,
            starts + len(self._before),
            ends + len(self._before),
            [spans[sentence] for sentence in present[kept].tolist()],
            int((~kept).sum()),
        )


def marker_of(tokenizer: Any) -> int | None:
    """Id of ``<sent>`` in a tokenizer's vocabulary; None if it is not in it."""
    known: int | None = tokenizer.get_vocab().get(SENT)
    return known
