r"""COIL: a question's token meets only the same token of a passage (`Gao et al. 2021 <https://arxiv.org/abs/2104.07186>`_).

.. math:: s(q, p) = \sum_{i : t_i \in p} \max_{j : t_j = t_i} E_q^i \cdot E_p^j

An inverted list holds every occurrence of a token in the corpus, so a question reads only the lists of its tokens.
``[CLS]`` is in every text, and its product is the semantic part of the score (the paper's COIL-full).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import Ties, merge_top_k

_ROWS = 65536  # rows of a list whose vectors are read together


class TokenIndex:
    """Inverted lists over the tokens of a corpus.

    Args:
        tokens: Stored vectors of all passages' tokens ``(T, d)``, may be memory-mapped.
        ids: Their ids in the vocabulary ``(T,)``.
        starts: First token of each passage, and one past the last ``(m + 1,)``.
    """

    def __init__(self, tokens: NDArray[np.generic], ids: NDArray[np.integer], starts: NDArray[np.int64]) -> None:
        self._tokens, self._count = tokens, len(starts) - 1
        by_id = np.argsort(ids, kind="stable")  # by id, then in the order of the corpus
        self._ids, first = np.unique(ids[by_id], return_index=True)
        self._bounds = np.append(first, len(ids))
        self._rows = by_id.astype(np.uint32) if len(ids) < 2**32 else by_id
        self._passages = np.repeat(np.arange(self._count, dtype=np.uint32), np.diff(starts))[by_id]

    def scores(self, query: NDArray[np.floating], ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Scores ``(m,)`` of all passages for one question.

        Args:
            query: Vectors of its tokens ``(l, d)``.
            ids: Their ids ``(l,)``.
        """
        vectors, totals = np.asarray(query, dtype=np.float32), np.zeros(self._count, dtype=np.float32)
        for token in np.unique(ids):
            place = int(np.searchsorted(self._ids, token))
            if place == len(self._ids) or self._ids[place] != token:
                continue
            occurrences = slice(self._bounds[place], self._bounds[place + 1])
            rows, passages = self._rows[occurrences], self._passages[occurrences]
            token_vectors = vectors[ids == token]  # (times in the question, d)
            parts = [
                np.asarray(self._tokens[rows[start : start + _ROWS]], dtype=np.float32) @ token_vectors.T
                for start in range(0, len(rows), _ROWS)
            ]
            # Occurrences are in the order of the corpus, so those of a passage are adjacent.
            firsts = np.flatnonzero(np.append(True, passages[1:] != passages[:-1]))
            totals[passages[firsts]] += np.maximum.reduceat(np.concatenate(parts), firsts, axis=0).sum(1)
        return totals

    def top_k(
        self,
        queries: NDArray[np.floating],
        ids: NDArray[np.integer],
        k: int,
        advance: Callable[[int], None] = lambda count: None,
        ties: Ties | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The ``k`` passages of highest score for every question.

        Args:
            queries: Vectors of the questions ``(n, l, d)``.
            ids: Ids of their tokens ``(n, l)``.
            k: Number of passages per question, at most ``m``.
            advance: Called with the number of questions that were ranked.
            ties: As :func:`gnnretrieval.encoders.exact_search.merge_top_k`.

        Returns:
            Rows ``(n, k)`` int64 and scores ``(n, k)`` float32, highest score first.
        """
        rows, scores = np.zeros((len(queries), k), dtype=np.int64), np.zeros((len(queries), k), dtype=np.float32)
        for number, (query, token_ids) in enumerate(zip(queries, ids, strict=True)):
            totals = self.scores(query, token_ids)
            best = np.flatnonzero(totals >= np.partition(totals, -k)[-k])  # k passages, and those equal to the last
            (rows[number],), (scores[number],), _ = merge_top_k(best[None], totals[best][None], k, ties)
            advance(1)
        return rows, scores
