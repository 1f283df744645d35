"""One question's rankings by two encoders, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.index.search import Hit, hits_of

Ranked = tuple[NDArray[np.int64], NDArray[np.float32]]


class MovedHit(NamedTuple):
    """A retrieved passage with its rank by the other encoder.

    Attributes:
        hit: The passage as this encoder ranks it.
        elsewhere: Its rank by the other encoder, from 1; None if it is below :attr:`EncoderComparison.depth`.
    """

    hit: Hit
    elsewhere: int | None


class EncoderComparison(NamedTuple):
    """One question's ranking by the dual-encoder alone and by the GNN-encoder.

    Attributes:
        dual_encoder: Hits of the dual-encoder, best first.
        gnn_encoder: Hits of the GNN-encoder, best first.
        depth: Number of passages of each ranking in which ranks were looked up.
    """

    dual_encoder: list[MovedHit]
    gnn_encoder: list[MovedHit]
    depth: int


def compared(texts: TextStore, before: Ranked, after: Ranked, k: int, depth: int) -> EncoderComparison:
    """Compare two rankings of one question, with ``k`` hits each.

    Args:
        texts: Texts of the index.
        before: Rows and scores ``(depth,)`` by the dual-encoder.
        after: Rows and scores ``(depth,)`` by the GNN-encoder.
        k: Number of hits.
        depth: Number of passages in each ranking.
    """
    dual, gnn = (hits_of(texts, rows[:k], scores[:k]) for rows, scores in (before, after))
    dual_ranks, gnn_ranks = _ranks(before[0], dual), _ranks(after[0], gnn)
    return EncoderComparison(
        [MovedHit(hit, gnn_ranks.get(hit.row)) for hit in dual],
        [MovedHit(hit, dual_ranks.get(hit.row)) for hit in gnn],
        depth,
    )


def _ranks(rows: NDArray[np.int64], hits: Sequence[Hit]) -> dict[int, int]:
    """Rank by row: a hit has its rank among the hits, where ties are ordered; any other row its place in ``rows``."""
    return {row: rank for rank, row in enumerate(rows.tolist(), 1) if row >= 0} | {hit.row: hit.rank for hit in hits}
