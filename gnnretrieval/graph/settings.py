"""Settings of building a graph."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings

EdgeFeature = Literal["score", "reciprocal_rank", "bm25"]


class GraphSettings(Settings):
    """Which edges, and what they carry.

    Attributes:
        k: Passages a training query is joined to.
        edge_features: Cheap edge features: the dual-encoder's ``score``, the ``reciprocal_rank``, and ``bm25``: the
            pair's BM25 score as a share of the query's best.
        split: The queries that make the graph.
    """

    k: int = Field(5, ge=1)
    edge_features: tuple[EdgeFeature, ...] = ("score", "reciprocal_rank", "bm25")
    split: str = "train"
