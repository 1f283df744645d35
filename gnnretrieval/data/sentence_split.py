"""Split a text into sentences, by pysbd's rules for English."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

from gnnretrieval.platform.extras import extra

Span = tuple[int, int]
_WORD = re.compile(r"\w")


def split_sentences(text: str) -> list[Span]:
    """Character spans of the sentences of ``text``, without the white space around them.

    The spans are in order, and every other character is in exactly one of them. A text without end marks is one
    sentence; an empty text has none. Single marks, such as a quotation mark after a full stop, belong to the sentence
    before them. A first line of invisible characters, such as a byte order mark, belongs to the sentence after it:
    tokenizers leave these out, and a sentence without tokens has no vector.

    About 250 paragraphs of 800 characters take a second. Time grows with the square of a text's length: 50,000
    characters take some seconds.
    """
    sentences: list[Span] = []
    for start, end in _without_gaps(text):
        if not (piece := text[start:end].strip()):
            continue
        start = text.index(piece, start)
        if sentences and not (_WORD.search(piece) and _is_visible(text[slice(*sentences[-1])])):
            start = sentences.pop()[0]
        sentences.append((start, text.index(piece, start) + len(piece)))
    return sentences


def _is_visible(sentence: str) -> bool:
    return any(map(str.isprintable, sentence))


def _without_gaps(text: str) -> Iterator[Span]:
    """Pysbd's spans in order, and a span for each gap: pysbd loses some rare characters that it uses as marks."""
    done = 0
    for span in _segmenter().segment(text) if text.strip() else ():
        if span.end <= done:
            continue
        if span.start > done:
            yield done, span.start
        yield max(done, span.start), span.end
        done = span.end
    if done < len(text):
        yield done, len(text)


def _segmenter() -> Any:
    """A new segmenter: it keeps the text that it splits, so threads cannot share one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in its regular expressions
        pysbd = extra("pysbd", "quickstart", "Splitting passages into sentences")
    return pysbd.Segmenter(language="en", clean=False, char_span=True)
