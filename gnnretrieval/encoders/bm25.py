"""BM25 by bm25s, with an English stemmer and stop words: the lexical baseline and an edge feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray


class BM25:
    """A BM25 index in memory.

    Args:
        texts: The passages' texts, title included, in row order.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25()
        tokens = self._tokens(list(texts))
        self._count = len(tokens)
        self._index.index(tokens, show_progress=False)

    def _tokens(self, texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False, return_ids=False)

    def scores(self, query: str) -> NDArray[np.float32]:
        """BM25 score of every passage ``(m,)``; zero where the query and a passage share no word."""
        (tokens,) = self._tokens([query])
        if not tokens:
            return np.zeros(self._count, dtype=np.float32)
        scores: NDArray[np.float32] = self._index.get_scores(tokens)
        return scores

    def top_k(self, query: str, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores of at most ``k`` passages that share a word with the query, best first."""
        scores = self.scores(query)
        k = min(k, len(scores))
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero((scores >= last) & (scores > 0))  # with all that tie at the cut
        rows = rows[np.lexsort((rows, -scores[rows]))][:k]
        return rows, scores[rows]

    def shares_of_best(self, query: str, rows: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """BM25 scores of some rows, each divided by the query's best score over all passages (0 where that is 0)."""
        scores = self.scores(query)
        best = float(scores.max(initial=0.0))
        return scores[np.asarray(rows)] / best if best > 0 else np.zeros(len(rows), dtype=np.float32)
