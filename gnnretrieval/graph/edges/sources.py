"""Registry of edge sources besides the dual-encoder: one function and one line of the table per source.

Reading the table does not load torch: the command line's help needs the names only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gnnretrieval.progress import progress

if TYPE_CHECKING:
    from gnnretrieval.data.runs.trec import Run
    from gnnretrieval.data.text_store import TextStore
    from gnnretrieval.encoders.bm25 import BM25

DUAL_ENCODER = "dual-encoder"  # not in the table: it searches by the features, and fills up for the others
_QUERIES = 1024  # queries per block


class Wanted(NamedTuple):
    """Input of a source: the queries, and what it may search in.

    Attributes:
        rows: Rows of the queries in ``texts``.
        ids: Their ids.
        texts: Texts and ids of the graph.
        k: Passages per query.
        bm25: BM25 over the passages, for a source with :attr:`EdgeSource.keeps_bm25`.
        run: The user's run, for a source with :attr:`EdgeSource.takes_run`.
    """

    rows: range
    ids: Sequence[str]
    texts: TextStore
    k: int
    bm25: BM25 | None = None
    run: Run | None = None


class EdgeSource(NamedTuple):
    """A source of edges.

    Attributes:
        find: Returns the passage rows of each query, best first, at most ``k``. Where there are fewer, the dual-encoder
            adds its best others.
        words: Describes the edges in messages and model cards.
        keeps_bm25: Whether the store keeps a BM25 index for it.
        takes_run: Whether it reads a TREC run.
        takes_passages: Whether passages can be added later without changing the lists of the old queries.
    """

    find: Callable[[Wanted], list[list[int]]]
    words: str
    keeps_bm25: bool = False
    takes_run: bool = False
    takes_passages: bool = True


def _by_bm25(wanted: Wanted) -> list[list[int]]:
    """BM25's top-k; fewer where fewer passages share a word with the query."""
    assert wanted.bm25 is not None
    rankings: list[list[int]] = []
    with progress("BM25", len(wanted.rows), "queries") as meter:
        for start in range(0, len(wanted.rows), _QUERIES):
            queries = wanted.texts.texts_of_queries(wanted.rows[start : start + _QUERIES])
            rankings += [best.tolist() for best, _ in wanted.bm25.top_k_of(queries, wanted.k, advance=meter.advance)]
    return rankings


def _by_run(wanted: Wanted) -> list[list[int]]:
    """The first ``k`` of each query's ranking in the run, without passages that are not in the graph."""
    assert wanted.run is not None
    rankings = [[ranked.passage_id for ranked in wanted.run.get(id_, [])] for id_ in wanted.ids]
    row_of = wanted.texts.rows_of_passages(sorted({id_ for ranking in rankings for id_ in ranking}))
    return [[row_of[id_] for id_ in ranking if id_ in row_of][: wanted.k] for ranking in rankings]


EDGE_SOURCES: Mapping[str, EdgeSource] = {
    "bm25": EdgeSource(_by_bm25, "BM25's best", keeps_bm25=True, takes_passages=False),
    "run": EdgeSource(_by_run, "a run's best", takes_run=True),
}
