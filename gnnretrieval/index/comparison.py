"""One question's rankings by two encoders, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import QueryRow, TextStore
from gnnretrieval.index.search import Hit, hits_of

_UNSURE = 0.01  # share of the training questions that this mark would be wrong about, by construction

Ranked = tuple[NDArray[np.int64], NDArray[np.float32]]


class MovedHit(NamedTuple):
    """A retrieved passage with its rank in the other ranking.

    Attributes:
        hit: The passage as this ranking has it.
        elsewhere: Its rank in the other, from 1; None if it is below the depth of the search.
        matched: The training question by which it was found, where passages have several vectors; None: its own vector.
    """

    hit: Hit
    elsewhere: int | None
    matched: QueryRow | None = None


class EncoderComparison(NamedTuple):
    """One question's ranking by the dual-encoder alone and by the GNN-encoder.

    Attributes:
        dual_encoder: Hits of the dual-encoder, best first.
        gnn_encoder: Hits of the GNN-encoder, best first.
        depth: Number of passages of each ranking in which ranks were looked up.
        relevant: Ids of the passages that are labelled relevant, if it is a training question; else None.
        share_below: Share of the training questions with a best score by the dual-encoder not above this question's;
            None without training questions.
    """

    dual_encoder: list[MovedHit]
    gnn_encoder: list[MovedHit]
    depth: int
    relevant: list[str] | None = None
    share_below: float | None = None

    @property
    def is_unsure(self) -> bool:
        """Whether the question is unlike the training questions: its best score is among their lowest hundredth."""
        return self.share_below is not None and self.share_below <= _UNSURE


def moved_hits(texts: TextStore, before: Ranked, after: Ranked, k: int) -> tuple[list[MovedHit], list[MovedHit]]:
    """The ``k`` best hits of two rankings of one question, each with its rank in the other.

    Args:
        texts: Texts of the index.
        before: Rows and scores ``(depth,)`` of one ranking.
        after: Rows and scores ``(depth,)`` of the other.
        k: Number of hits.
    """
    first, second = (_best(texts, *ranking, k) for ranking in (before, after))
    first_ranks, second_ranks = _ranks(before[0], first), _ranks(after[0], second)
    return (
        [MovedHit(hit, second_ranks.get(hit.row)) for hit in first],
        [MovedHit(hit, first_ranks.get(hit.row)) for hit in second],
    )


def _best(texts: TextStore, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> list[Hit]:
    """The ``k`` best hits, as a search for ``k`` finds them: of equal scores at the cut, the first by id."""
    count = int((scores >= scores[k - 1]).sum()) if k < len(scores) else len(scores)
    return hits_of(texts, rows[:count], scores[:count])[:k]


def _ranks(rows: NDArray[np.int64], hits: Sequence[Hit]) -> dict[int, int]:
    """Rank by row: a hit has its rank among the hits, where ties are ordered; any other row its place in ``rows``."""
    return {row: rank for rank, row in enumerate(rows.tolist(), 1) if row >= 0} | {hit.row: hit.rank for hit in hits}
