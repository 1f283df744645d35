"""Who finds the passages that a query is joined to, beside the dual-encoder: a function and a line of the table each.

The table is read without loading torch, for the command line's help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gnnretrieval.progress import progress

if TYPE_CHECKING:
    from gnnretrieval.data.runs.trec import Run
    from gnnretrieval.data.text_store import TextStore
    from gnnretrieval.encoders.bm25 import BM25

DUAL_ENCODER = "dual-encoder"  # the source that is none of the table: by the features, and where another finds too few
_QUERIES = 1024  # queries a block


class Wanted(NamedTuple):
    """The queries that passages are wanted for, and what a source may look at.

    Attributes:
        rows: Rows of the queries in ``texts``.
        ids: Their ids.
        texts: Texts and ids of the graph.
        k: Passages a query.
        bm25: BM25 over the passages, for a source with :attr:`EdgeSource.keeps_bm25`.
        run: The run that was given, for a source with :attr:`EdgeSource.takes_run`.
    """

    rows: range
    ids: Sequence[str]
    texts: TextStore
    k: int
    bm25: BM25 | None = None
    run: Run | None = None


class EdgeSource(NamedTuple):
    """Who finds passages.

    Attributes:
        find: Rows of the passages of each query, best first, at most ``k``; where there are fewer, the dual-encoder
            fills up.
        words: What makes the edges, for a model's card.
        keeps_bm25: Whether the store keeps a BM25 index for it.
        takes_run: Whether a TREC run is given to it.
        takes_passages: Whether passages can be added later: what is found for the old queries stays right.
    """

    find: Callable[[Wanted], list[list[int]]]
    words: str
    keeps_bm25: bool = False
    takes_run: bool = False
    takes_passages: bool = True


def _by_bm25(wanted: Wanted) -> list[list[int]]:
    """BM25's best; fewer where fewer passages share a word with a query."""
    assert wanted.bm25 is not None
    found: list[list[int]] = []
    with progress("BM25", len(wanted.rows), "queries") as meter:
        for start in range(0, len(wanted.rows), _QUERIES):
            queries = wanted.texts.texts_of_queries(wanted.rows[start : start + _QUERIES])
            found += [best.tolist() for best, _ in wanted.bm25.top_k_of(queries, wanted.k, advance=meter.advance)]
    return found


def _by_run(wanted: Wanted) -> list[list[int]]:
    """The first of each query's ranking in a run; passages that are not in the graph are left out."""
    assert wanted.run is not None
    rankings = [[found.passage_id for found in wanted.run.get(id_, [])] for id_ in wanted.ids]
    row_of = wanted.texts.rows_of_passages(sorted({id_ for ranking in rankings for id_ in ranking}))
    return [[row_of[id_] for id_ in ranking if id_ in row_of][: wanted.k] for ranking in rankings]


EDGE_SOURCES: Mapping[str, EdgeSource] = {
    "bm25": EdgeSource(_by_bm25, "BM25's best", keeps_bm25=True, takes_passages=False),
    "run": EdgeSource(_by_run, "a run's best", takes_run=True),
}
