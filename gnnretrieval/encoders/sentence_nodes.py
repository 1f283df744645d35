"""Contextual vectors of sentences that are passages: the sentences of one text are read together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import Passage
from gnnretrieval.data.sentences import SentencePassages
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.errors import GnnRetrievalError


def encode_sentence_passages(
    encoder: DualEncoder, groups: Sequence[SentencePassages]
) -> tuple[NDArray[np.float32], int]:
    """Vectors ``(sentences, d)`` float32 of all sentences of the groups, and the number of those encoded alone.

    A group is read as ``title. s1 s2 …``; the title is a separate sentence, whose vector is left out. A sentence that
    is entirely beyond the limit of tokens is encoded alone, after its title.

    Raises:
        GnnRetrievalError: The encoder reads passages whole.
    """
    if encoder.sentences is None:
        raise GnnRetrievalError("passages are read whole: give sentences = token or mean.")
    texts, spans = [], []
    for group in groups:
        pieces = ([f"{group.title}."] if group.title else []) + group.texts
        ends = np.cumsum([len(piece) + 1 for piece in pieces]).tolist()
        texts.append(" ".join(pieces))
        spans.append([(end - 1 - len(piece), end - 1) for end, piece in zip(ends, pieces, strict=True)])
    encoded = encoder.sentences.encode(texts, encoder.settings.token_budget, spans)
    vectors = np.empty((sum(len(group.texts) for group in groups), encoder.dimension), dtype=np.float32)
    # Sentences beyond the limit have no span in the result; they are encoded together at the end.
    alone: dict[int, str] = {}  # text by row
    row = first = 0
    for group, group_spans, kept, count in zip(groups, spans, encoded.spans, encoded.counts.tolist(), strict=True):
        place = {span: first + number for number, span in enumerate(kept)}
        for text, span in zip(group.texts, group_spans[bool(group.title) :], strict=True):
            if span in place:
                vectors[row] = encoded.vectors[place[span]]
            else:
                alone[row] = Passage("", group.title, text).full_text
            row += 1
        first += count
    if alone:
        vectors[[*alone]] = encoder.encode([*alone.values()], "passage")
    return vectors, len(alone)
