"""Ranking by late interaction."""

from __future__ import annotations

from collections.abc import Sequence

from gnnretrieval.data.runs.ranking import ties_by_id
from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.late_search import late_top_k


def late_run(features: Features, query_ids: Sequence[str], depth: int, device: str = "cpu") -> Run:
    """The exact run of some queries over all passages of the features.

    Args:
        features: Features with a vector per token.
        query_ids: Ids of the queries.
        depth: Maximum number of passages per query.
        device: Device of the products; inverted lists are read on the CPU.

    Raises:
        ArtifactError: The features have one vector per text, or lack a query.
    """
    passage_ids = features.passage_ids()
    found = late_top_k(features, features.rows_of(query_ids), depth, device, ties_by_id(passage_ids))
    return {
        query_id: rank_rows(rows[None], scores[None], passage_ids)[0]
        for query_id, (rows, scores) in zip(query_ids, found, strict=True)
    }
