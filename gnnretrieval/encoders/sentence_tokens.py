"""Tokens of passages as DCSR reads them: a whole passage at once, and where each of its sentences lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.sentence_split import Span, split_sentences
from gnnretrieval.errors import InputError

SENT = "<sent>"

Ids = NDArray[np.int64]


class SentenceTokens(NamedTuple):
    """A passage's tokens; sentence ``i``'s are ``ids[starts[i]:ends[i]]``.

    Attributes:
        ids: Token ids ``(t,)``, special ones included.
        starts: First token of each sentence ``(s,)``: its ``<sent>``, where the tokenizer has one.
        ends: One past its last token ``(s,)``.
        spans: Its characters in the text.
        cut: Sentences that the limit left nothing of; they are not among the others.
    """

    ids: Ids
    starts: Ids
    ends: Ids
    spans: list[Span]
    cut: int


class SentenceTokenizer:
    """Splits passages to ``[CLS] <sent> s1 <sent> s2 … [SEP]`` (`DCSR <https://arxiv.org/abs/2110.07524>`_, 3.2).

    The special tokens are the tokenizer's own. ``<sent>`` is put before a sentence where the vocabulary has it; else
    the tokens are the very ones of ``tokenizer(text, truncation=True, max_length=max_tokens)``.

    Args:
        tokenizer: A transformers tokenizer.
        max_tokens: Longest passage, special tokens included; None: no limit.
        prompt: Put before every text; its tokens are in the first sentence, its characters in no span.

    Raises:
        InputError: the tokenizer is not one of the ``tokenizers`` library, or ``max_tokens`` has no place for a token.
    """

    def __init__(self, tokenizer: Any, max_tokens: int | None, prompt: str = "") -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise InputError(
                "this checkpoint's tokenizer has no tokenizer.json. Save it with one.", tokenizer.name_or_path or None
            )
        self._splitter: Any = Tokenizer.from_str(backend.to_str())  # a copy: the tokenizer's own settings stay
        self._splitter.no_truncation()
        self._splitter.no_padding()
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
        """Tokens of some passages, given as full texts; each has one sentence at least, if an empty one.

        Args:
            texts: The passages.
            spans: The sentences' characters in each; None: as :func:`split_sentences` finds them.
        """
        encoded = self._splitter.encode_batch([self.prompt + text for text in texts], add_special_tokens=False)
        if spans is None:
            spans = [split_sentences(text) for text in texts]
        return [self._tokens(*passage) for passage in zip(texts, spans, encoded, strict=True)]

    def _tokens(self, text: str, spans: list[Span], encoding: Any) -> SentenceTokens:
        spans = spans or [(0, len(text))]
        first = np.array([start for start, _ in spans], dtype=np.int64) + len(self.prompt)
        lasts = np.array([end for _, end in encoding.offsets], dtype=np.int64) - 1  # each token's last character
        # A token is in the sentence that its last character is in: before it there may be white space.
        owner = np.maximum.accumulate(np.searchsorted(first, lasts, side="right") - 1).clip(0)  # (tokens,)
        ids = np.array(encoding.ids, dtype=np.int64)
        present = np.unique(owner)  # sentences that have tokens
        begins = np.searchsorted(owner, present)
        if self.marker is not None:
            if not len(present):
                present = begins = np.zeros(1, dtype=np.int64)
            ids = np.insert(ids, begins, self.marker)
            begins = begins + np.arange(len(begins))
        ends = np.append(begins[1:], len(ids)) if len(begins) else begins
        limit = len(ids) if self._most is None else self._most
        kept = begins + (0 if self.marker is None or len(ids) == 1 else 1) < limit  # more than its marker
        starts, ends = begins[kept], np.minimum(ends[kept], limit)
        ids = ids[: int(ends[-1]) if len(ends) else 0]
        framed = np.concatenate([self._before, ids, self._after]).astype(np.int64)
        if not len(starts):  # no token at all: the special ones are what there is
            return SentenceTokens(framed, np.zeros(1, np.int64), np.array([len(framed)]), [(0, len(text))], 0)
        return SentenceTokens(
            framed,
            starts + len(self._before),
            ends + len(self._before),
            [spans[sentence] for sentence in present[kept].tolist()],
            int((~kept).sum()),
        )


def marker_of(tokenizer: Any) -> int | None:
    """Id of ``<sent>`` in a tokenizer's vocabulary; None where it is no token of it."""
    known: int | None = tokenizer.get_vocab().get(SENT)
    return known
