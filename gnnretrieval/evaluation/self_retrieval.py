"""Leave out queries that retrieve themselves: in ArguAna and Quora the queries are passages too.

Equal ids are not enough: where queries and passages are numbered, query 17 and passage 17 have nothing in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gnnretrieval.data.beir import read_passages, read_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.data.runs.ranking import Ranking
from gnnretrieval.data.runs.trec import Run

_BY_CHANCE = 0.01  # share of queries whose ids may coincide by chance: reading millions of texts takes a minute


def queries_with_own_id(runs: Iterable[Run], queries: Iterable[str]) -> set[str]:
    """The queries that retrieve a passage with their own id in one of the runs."""
    ids = list(queries)
    return {query for run in runs for query in ids if query in run and _has(run, query)}


def queries_that_are_passages(path: Path, candidates: set[str], queries: int) -> set[str]:
    """The ``candidates`` that are the passage with their id: it has their text and at most as much again.

    Args:
        path: The dataset directory.
        candidates: Result of :func:`queries_with_own_id`.
        queries: Number of all queries. If at most 1 % of them are candidates, no texts are read and none is returned.
    """
    if len(candidates) <= _BY_CHANCE * queries:
        return set()
    queries_read = (query for query, _ in read_queries(path / QUERIES, False))
    texts = {query.id: normalised(query.text) for query in queries_read if query.id in candidates}
    same = set()
    for passage, _ in read_passages(path / CORPUS, unique=False):
        text = texts.get(passage.id)
        if text and text in normalised(f"{passage.title} {passage.text}") and len(passage.text) <= 2 * len(text):
            same.add(passage.id)
    return same


def leave_out_self(
    runs: Mapping[str, Run], path: Path, queries: Collection[str], by_id: bool = False
) -> tuple[dict[str, Run], int]:
    """Remove from each query's ranking the passage that is the query itself.

    Args:
        runs: Runs of one dataset, by system.
        path: The dataset's directory.
        queries: Ids of the queries that will be measured.
        by_id: Remove every passage with the query's id; otherwise only one that has the query's text too.

    Returns:
        The runs, and for how many queries a passage was removed.
    """
    retrieved = queries_with_own_id(runs.values(), queries)
    if not by_id:
        retrieved = queries_that_are_passages(path, retrieved, len(queries))
    return {name: without_self(run, retrieved) if retrieved else run for name, run in runs.items()}, len(retrieved)


def without_self(run: Run, queries: Iterable[str]) -> Run:
    """The run, with the passage of the same id removed for each of ``queries``."""
    return run | {query: _without(run, query) for query in queries if query in run and _has(run, query)}


def _has(run: Run, query: str) -> bool:
    ranking = run[query]
    return ranking.has(query) if isinstance(ranking, Ranking) else query in (hit.passage_id for hit in ranking)


def _without(run: Run, query: str) -> Ranking:
    kept = [hit for hit in run[query] if hit.passage_id != query]
    return Ranking([hit.passage_id for hit in kept], [hit.score for hit in kept])
