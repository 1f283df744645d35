"""One question's rankings by two encoders side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.index.search import Hit, hits_of

Ranked = tuple[NDArray[np.int64], NDArray[np.float32]]


class MovedHit(NamedTuple):
    """A passage found, and where the other encoder has it.

    Attributes:
        hit: As this encoder ranks it.
        elsewhere: Its rank by the other encoder, from 1; None where it is below :attr:`EncoderComparison.depth`.
    """

    hit: Hit
    elsewhere: int | None


class EncoderComparison(NamedTuple):
    """One question's ranking by the dual-encoder alone and by the GNN-encoder.

    Attributes:
        dual_encoder: Best first.
        gnn_encoder: Best first.
        depth: How many passages of each ranking were looked through.
    """

    dual_encoder: list[MovedHit]
    gnn_encoder: list[MovedHit]
    depth: int


def compared(texts: TextStore, before: Ranked, after: Ranked, k: int, depth: int) -> EncoderComparison:
    """The comparison of two rankings of one question, rows and scores ``(depth,)`` by each encoder, ``k`` hits each."""
    dual, gnn = (hits_of(texts, rows[:k], scores[:k]) for rows, scores in (before, after))
    dual_ranks, gnn_ranks = _ranks(before[0], dual), _ranks(after[0], gnn)
    return EncoderComparison(
        [MovedHit(hit, gnn_ranks.get(hit.row)) for hit in dual],
        [MovedHit(hit, dual_ranks.get(hit.row)) for hit in gnn],
        depth,
    )


def _ranks(rows: NDArray[np.int64], hits: Sequence[Hit]) -> dict[int, int]:
    """Rank by row: of the hits as they are ranked, of the others as they were found."""
    return {row: rank for rank, row in enumerate(rows.tolist(), 1) if row >= 0} | {hit.row: hit.rank for hit in hits}
