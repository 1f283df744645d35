"""Whether a new question is one of the training questions, and whether it is like them."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.stored_questions import plain
from gnnretrieval.storage.arrays import blocks

_QUERIES = 65536  # queries read at a time


class KnownQuestions:
    """The training questions by their text, in 16 bytes each.

    Args:
        texts: Texts and judgements of the questions; used by each call.
    """

    def __init__(self, texts: TextStore) -> None:
        self._texts = texts
        keys, rows = [], []
        for query in texts.queries():
            keys.append(_key(query.text))
            rows.append(query.row)
        order = np.argsort(np.array(keys, dtype=np.uint64), kind="stable")
        self._keys, self._rows = np.array(keys, dtype=np.uint64)[order], np.array(rows, dtype=np.int64)[order]

    def relevant(self, question: str) -> list[str] | None:
        """Ids of the passages that are labelled relevant to a training question; None for any other question.

        White space is compared as single spaces. Questions with the same text have their passages together.
        """
        key = np.uint64(_key(question))
        first, last = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        rows = [row for row in self._rows[first:last].tolist() if plain(self._texts.query(row).text) == plain(question)]
        if not rows:
            return None
        passages = dict.fromkeys(passage for row in rows for passage in self._texts.relevant_to(row))
        return [self._texts.passage(passage).id for passage in passages]


class BestScores:
    """The dual-encoder's score of each training question's best passage, to compare a new question's with.

    Where the edges are not the dual-encoder's, it is the best of the passages that the question is joined to.

    Args:
        store: The graph; passages that it hides do not count.
    """

    def __init__(self, store: Graph) -> None:
        best, hidden = [np.empty(0, dtype=np.float32)], np.array(sorted(store.hidden), dtype=np.int64)
        for part in blocks(store.num_queries, _QUERIES):
            passages, scores = store.retrieved(part)
            best.append(np.where(np.isin(passages, hidden), -np.inf, scores).max(axis=1))
        self._sorted: NDArray[np.float32] = np.sort(np.concatenate(best))

    def share_below(self, score: float) -> float | None:
        """Share of the training questions with a best score of at most ``score``; None if there are no questions."""
        if not len(self._sorted):
            return None
        return float(np.searchsorted(self._sorted, np.float32(score), "right")) / len(self._sorted)


def _key(text: str) -> int:
    return int.from_bytes(blake2b(plain(text).encode(), digest_size=8).digest())
