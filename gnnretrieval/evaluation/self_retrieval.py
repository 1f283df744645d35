"""Queries that are passages themselves, as in ArguAna and Quora: they find themselves, which is no success.

The id alone does not tell: where queries and passages are numbered, query 17 and passage 17 have nothing in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gnnretrieval.data.beir import read_passages, read_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.data.runs.ranking import Ranking
from gnnretrieval.data.runs.trec import Run

_BY_CHANCE = 0.01  # of the queries: ids may coincide in so many, and reading millions of texts takes a minute


def queries_with_own_id(runs: Iterable[Run], queries: Iterable[str]) -> set[str]:
    """The queries that find a passage with their own id in one of the runs."""
    asked = list(queries)
    return {query for run in runs for query in asked if query in run and _has(run, query)}


def queries_that_are_passages(path: Path, found: set[str], queries: int) -> set[str]:
    """Those of the queries ``found`` with their own id that are that passage: it has little more than their text.

    Args:
        path: The dataset directory.
        found: Of :func:`queries_with_own_id`.
        queries: Of how many queries. Where one in a hundred or fewer are found, their texts are not looked at.
    """
    if len(found) <= _BY_CHANCE * queries:
        return set()
    asked = {query.id: normalised(query.text) for query, _ in read_queries(path / QUERIES, False) if query.id in found}
    same = set()
    for passage, _ in read_passages(path / CORPUS, unique=False):
        text = asked.get(passage.id)
        if text and text in normalised(f"{passage.title} {passage.text}") and len(passage.text) <= 2 * len(text):
            same.add(passage.id)
    return same


def leave_out_self(
    runs: Mapping[str, Run], path: Path, queries: Collection[str], by_id: bool = False
) -> tuple[dict[str, Run], int]:
    """The runs without what queries find of themselves, and for how many queries this is so.

    Args:
        runs: Runs of one dataset, by system.
        path: The dataset's directory.
        queries: The queries that will be measured.
        by_id: Leave out the passage with the query's id; else only where it has the query's text too.
    """
    found = queries_with_own_id(runs.values(), queries)
    if not by_id:
        found = queries_that_are_passages(path, found, len(queries))
    return {name: without_self(run, found) if found else run for name, run in runs.items()}, len(found)


def without_self(run: Run, queries: Iterable[str]) -> Run:
    """The run, in which these queries do not find the passage with their id."""
    return run | {query: _without(run, query) for query in queries if query in run and _has(run, query)}


def _has(run: Run, query: str) -> bool:
    ranking = run[query]
    return ranking.has(query) if isinstance(ranking, Ranking) else any(query == one.passage_id for one in ranking)


def _without(run: Run, query: str) -> Ranking:
    kept = [one for one in run[query] if one.passage_id != query]
    return Ranking([one.passage_id for one in kept], [one.score for one in kept])
