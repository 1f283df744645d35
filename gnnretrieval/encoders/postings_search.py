"""Search over postings: the passages of highest summed scores for the terms of a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import Ties, merge_top_k
from gnnretrieval.encoders.postings import Postings
from gnnretrieval.errors import ArtifactError

Hits = tuple[NDArray[np.int64], NDArray[np.float32]]  # rows of passages and their scores


class PostingsSearch:
    r"""Sums of postings: ``s(q, p) = Σ_t w_t s_{t,p}`` over the terms ``t`` of a query, each with a weight.

    A query reads only the postings of its terms. Not thread-safe: queries share one array of sums.

    Args:
        postings: Postings by term.
        count: Number of passages ``m``.
    """

    def __init__(self, postings: Postings, count: int) -> None:
        self.postings, self.count = postings, count
        self._sums: NDArray[np.float32] | None = None

    def scores(self, terms: Sequence[int]) -> NDArray[np.float32]:
        """Score of every passage ``(m,)`` float32, each term with weight 1."""
        sums, rows_by_term = self._summed(terms, None)
        scores = sums.copy()
        _clear(sums, rows_by_term)
        return scores

    def shares_of_best(self, terms: Sequence[int], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores of ``rows``, each divided by the query's best score over all passages (0 if that is 0)."""
        sums, rows_by_term = self._summed(terms, None)
        best = max((float(sums[term_rows].max(initial=0.0)) for term_rows in rows_by_term), default=0.0)
        shares: NDArray[np.float32] = sums[rows] / np.float32(best or 1.0)
        _clear(sums, rows_by_term)
        return shares

    def top_k(
        self, terms: Sequence[int], k: int, weights: NDArray[np.float32] | None = None, ties: Ties | None = None
    ) -> Hits:
        """Rows and scores of the ``k`` best passages with a score above 0, best first.

        Args:
            terms: Numbers of the query's terms.
            k: Maximum number of passages.
            weights: Weight of each term; None: 1 each.
            ties: Which passages of equal score are among the ``k``; None: those with the lowest rows.
        """
        sums, rows_by_term = self._summed(terms, weights)
        kept = [(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))]
        cut = np.float32(0)  # lower bound of the k-th best score
        for rows in rows_by_term:
            scores = sums[rows]
            sums[rows] = 0  # keep a row once, however many terms it shares with the query
            good = (scores >= cut) & (scores > 0)
            kept.append((rows[good], scores[good]))
            cut = max(cut, _kth_best(kept[-1][1], k))
        rows, scores = (np.concatenate(column) for column in zip(*kept, strict=True))
        good = scores >= _kth_best(scores, k)  # all ties at the cut stay until they are ordered
        best, scores = rows[good].astype(np.int64), scores[good]
        if ties is not None and len(best) > k:
            (best,), (scores,), _ = merge_top_k(best[None], scores[None], k, ties)
            return best, scores
        order = np.lexsort((best, -scores))[:k]
        return best[order], scores[order]

    def _summed(
        self, terms: Sequence[int], weights: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.float32], list[NDArray[np.int32]]]:
        """Sums ``(m,)`` of all rows, and the rows of each term: only these are not 0, and the caller resets them."""
        if self._sums is None:
            self._sums = np.zeros(self.count, dtype=np.float32)
        postings = self.postings.of(terms)
        try:
            for number, (rows, scores) in enumerate(postings):
                self._sums[rows] += scores if weights is None else weights[number] * scores  # a term has a row once
        except IndexError as error:
            raise ArtifactError(f"these postings are damaged ({error}). Make them again.") from None
        return self._sums, [rows for rows, _ in postings]


def _kth_best(scores: NDArray[np.float32], k: int) -> np.float32:
    """The ``k``-th best of ``scores``; 0 if there are fewer."""
    place = len(scores) - k
    return np.float32(np.partition(scores, place)[place]) if place >= 0 and k > 0 else np.float32(0)


def _clear(sums: NDArray[np.float32], rows_by_term: Iterable[NDArray[np.int32]]) -> None:
    for rows in rows_by_term:
        sums[rows] = 0
