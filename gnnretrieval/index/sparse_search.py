"""Ranking by weights of terms (SPLADE) over a whole corpus."""

from __future__ import annotations

from collections.abc import Sequence

from gnnretrieval.data.runs.ranking import ties_by_id
from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.encoders.sparse_features import SparseFeatures
from gnnretrieval.progress import progress


def sparse_run(features: SparseFeatures, query_ids: Sequence[str], depth: int) -> Run:
    """The exact run of some queries over all passages of the features.

    A passage that shares no term with a query is not in its ranking.

    Args:
        features: Weights of terms.
        query_ids: Ids of the queries.
        depth: Maximum number of passages per query.

    Raises:
        ArtifactError: The features lack a query, or a file is damaged.
    """
    passage_ids = features.passage_ids()
    run: Run = {}
    with progress("searching inverted lists", len(query_ids), "queries") as meter:
        found = features.top_k(query_ids, depth, meter.advance, ties_by_id(passage_ids))
        for query_id, (rows, scores) in zip(query_ids, found, strict=True):
            (run[query_id],) = rank_rows(rows[None], scores[None], passage_ids)
    return run
