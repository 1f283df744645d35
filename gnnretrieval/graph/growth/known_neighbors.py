"""Retrieved lists of a graph that is built again: only what changed since is searched.

Unlike an addition in place, questions and passages may also be removed, and labels may have changed. The lists equal
those of a search of everything, since a score depends only on its two vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import exact_top_k, merge_top_k
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.edges.sources import DUAL_ENCODER
from gnnretrieval.graph.store import Graph
from gnnretrieval.progress import say
from gnnretrieval.storage.arrays import blocks

_ROWS = 65536


def neighbors_from(
    known: Graph,
    ids: tuple[list[str], list[str]],
    queries: NDArray[np.float16],
    passages: NDArray[np.float16],
    k: int,
    similarity: Similarity,
    device: str = "cpu",
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows and scores ``(n, k)`` as :func:`gnnretrieval.encoders.exact_search.exact_top_k` returns them.

    A query that ``known`` has keeps its list, and is compared with new passages. It is searched again if a passage of
    its list is gone or changed, and every query if the lists are not those of an exact search with this ``k``.

    Args:
        known: An earlier graph over the same encoder.
        ids: Ids of the queries and of the passages.
        queries: ``(n, d)``.
        passages: ``(m, d)``.
        k: Passages per query.
        similarity: How they are compared.
        device: Where to compute.
    """
    with known.texts() as texts:
        old_queries, old_passages = texts.query_ids(), texts.passage_ids()
    was_query = _rows_before(ids[0], queries, old_queries, known.query_features)
    was_passage = _rows_before(ids[1], passages, old_passages, known.passage_features)
    kept = was_passage[was_passage >= 0]
    n = len(queries)
    rows, scores = np.empty((n, k), dtype=np.int64), np.empty((n, k), dtype=np.float32)
    usable = known.config["edges"] == DUAL_ENCODER and known.config["search"] == "exact" and known.k == k
    usable = usable and known.similarity == similarity and bool((np.diff(kept) > 0).all())
    settled = np.zeros(n, dtype=bool)
    if usable:  # otherwise passages of equal score would have another order
        row_now = np.full(len(old_passages), -1, dtype=np.int64)
        row_now[kept] = np.flatnonzero(was_passage >= 0)
        rows_before, scores_before = known.retrieved(slice(known.num_queries))
        same_query = np.flatnonzero(was_query >= 0)
        neighbors = row_now[rows_before[was_query[same_query]]]  # (queries, k)
        whole = (neighbors >= 0).all(1)
        old = same_query[whole]
        settled[old] = True  # the whole list is still there, so only new passages can enter it
        rows[old], scores[old] = neighbors[whole], scores_before[was_query[old]]
    fresh = np.flatnonzero(was_passage < 0)
    old, others = np.flatnonzero(settled), np.flatnonzero(~settled)
    if len(old) and len(fresh):
        new_rows, new_scores = exact_top_k(queries[old], passages[fresh], min(k, len(fresh)), similarity, device=device)
        both = np.hstack([rows[old], fresh[new_rows]]), np.hstack([scores[old], new_scores])
        rows[old], scores[old], _ = merge_top_k(*both, k)
    if len(others):
        rows[others], scores[others] = exact_top_k(queries[others], passages, k, similarity, device=device)
    say(f"{len(others):,} of {n:,} questions were searched, the others compared with {len(fresh):,} new passages")
    return rows, scores


def _rows_before(
    ids: list[str], vectors: NDArray[np.float16], old_ids: list[str], old: NDArray[np.float16]
) -> NDArray[np.int64]:
    """Row ``(n,)`` in ``old`` of each id with the same vector; -1: it is new, or its vector has changed."""
    row_of = {id_: row for row, id_ in enumerate(old_ids)}
    rows = np.array([row_of.get(id_, -1) for id_ in ids], dtype=np.int64)
    for part in blocks(len(ids), _ROWS):
        same = (np.asarray(vectors[part]) == old[np.maximum(rows[part], 0)]).all(1)
        rows[part] = np.where(same, rows[part], -1)
    return rows
