"""Near-duplicate queries and passages, found through the graph itself instead of by comparing all with all.

Two passages that say the same stand beside one another among the neighbours of any query that found both, and two
queries that ask the same share their first passages. So passages are compared among the neighbours of one query, and
queries with those that have a first or second passage in common. Against comparing all with all, on graphs of three
real sets, that found 95 to 100 % of the near-duplicate pairs of queries and, of the passages in such pairs that queries
found, 73 to 90 % at k = 5 and 89 to 98 % at k = 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.graph.inspection.agreement import unit_queries
from gnnretrieval.graph.inspection.connectivity import sample_queries
from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, gather_rows, release

# Cosine from which two texts count as near-duplicates. With MiniLM, pairs of questions at 0.95 and above differ in a
# word or in word order ("Where did water to the west of the Amazon basin flow" / "Where did the water in the Amazon
# basin flow when moving west"), at times a word that matters ("int16" / "int8"): hence the examples. At 0.90 they ask
# different things about one subject ("Where were the Kikuyu located" / "How did the Kikuyu live"). Pairs of passages at
# 0.95 are variants of one text (scipy's bdtr / bdtrc), at 0.90 siblings (ss2tf / ss2zpk).
NEAR_DUPLICATE = 0.95
QUERIES = 1_000_000  # queries compared at most
PASSAGES_READ = 200_000  # neighbours read at most (300 MB at d = 768): of more, those of a seeded choice of queries
SHARED = 2  # first passages of which two queries must share one
WINDOW = 32  # queries with the same passage that each is compared with: the next by score
TEXTS = 20_000  # most similar pairs whose texts are compared
_READ = 16384  # rows between two reports
_FLOATS = 8 * 2**20  # of features held at a time: 32 MiB


class DuplicatePairs(NamedTuple):
    """DuplicatePairs of rows that are near-duplicates.

    Attributes:
        first: ``(P,)`` the lower row of each pair.
        second: ``(P,)`` the higher row.
        cosine: ``(P,)`` float32, highest first.
        compared: Rows that were looked at.
        of: Rows that there are to look at.
    """

    first: Rows
    second: Rows
    cosine: NDArray[np.float32]
    compared: int
    of: int


def similar_queries(store: Graph, seed: int, threshold: float = NEAR_DUPLICATE) -> DuplicatePairs:
    """DuplicatePairs of queries of cosine ``threshold`` or more that share one of their first ``SHARED`` passages.

    Queries of a passage are sorted by score and each is compared with the next ``WINDOW``: all with all for up to 33
    queries a passage.
    """
    rows = sample_queries(store, QUERIES, seed)
    shared = min(SHARED, store.k)
    passage = gather_rows(store.neighbors[:, :shared], rows, np.uint32).ravel()
    score = gather_rows(store.scores[:, :shared], rows).ravel()
    query = np.repeat(rows, shared)
    order = np.lexsort((query, -score, passage))
    passage, query = passage[order], query[order]
    found = _Found(store.num_queries)
    with progress("near-duplicate queries", len(query), "entries") as meter:
        for part in blocks(len(query), max(1, _FLOATS // store.dimension)):
            beyond = slice(part.start, part.stop + WINDOW)
            asked, of = query[beyond], passage[beyond]
            unit = unit_queries(store, asked)
            for distance in range(1, WINDOW + 1):
                left = np.flatnonzero(of[:-distance] == of[distance:])
                left = left[left < part.stop - part.start]
                if not len(left):
                    break  # no passage has more queries
                near = np.einsum("ij,ij->i", unit[left], unit[left + distance])
                similar = near >= threshold
                found.add(asked[left[similar]], asked[left[similar] + distance], near[similar])
            release(store.query_features)
            meter.advance(part.stop - part.start)
    return found.pairs(len(rows), len(shown_queries(store)))


def similar_passages(store: Graph, seed: int, threshold: float = NEAR_DUPLICATE) -> DuplicatePairs:
    """DuplicatePairs of passages of cosine ``threshold`` or more that are neighbours of one query."""
    k = store.k
    queries = sample_queries(store, max(1, PASSAGES_READ // k), seed)
    around = gather_rows(store.neighbors, queries, np.int64)  # (q, k)
    rows, places = np.unique(around, return_inverse=True)
    places = places.reshape(around.shape)
    vectors = np.empty((len(rows), store.dimension), dtype=np.float16)
    with progress("passages read", len(rows), "passages") as meter:
        for part in blocks(len(rows), _READ):
            vectors[part] = gather_rows(store.passage_features, rows[part], np.float16)
            meter.advance(part.stop - part.start)
    release(store.passage_features)
    found = _Found(store.num_passages)
    above = np.triu(np.ones((k, k), dtype=bool), 1)
    with progress("near-duplicate passages", len(queries), "queries") as meter:
        for part in blocks(len(queries), max(1, _FLOATS // (k * store.dimension))):
            needed, index = np.unique(places[part], return_inverse=True)
            unit = vectors[needed].astype(np.float32)
            unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.float32(1e-12))
            near = unit[index.reshape(-1, k)]  # (b, k, d)
            cosine = near @ near.transpose(0, 2, 1)  # (b, k, k)
            number, left, right = np.nonzero((cosine >= threshold) & above)
            of = around[part]
            found.add(of[number, left], of[number, right], cosine[number, left, right])
            meter.advance(part.stop - part.start)
    return found.pairs(len(rows), int((store.degrees() > 0).sum()))


class _Found:
    """Collects pairs, each once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._keys: list[Rows] = []
        self._cosines: list[NDArray[np.float32]] = []

    def add(self, one: Rows, other: Rows, cosine: NDArray[np.float32]) -> None:
        if len(one):
            key, first = np.unique(
                np.minimum(one, other).astype(np.int64) * self.count + np.maximum(one, other), return_index=True
            )
            self._keys.append(key)
            self._cosines.append(cosine[first])

    def pairs(self, compared: int, of: int) -> DuplicatePairs:
        keys = np.concatenate([np.empty(0, dtype=np.int64), *self._keys])
        cosines = np.concatenate([np.empty(0, dtype=np.float32), *self._cosines])
        keys, first = np.unique(keys, return_index=True)
        cosines = np.minimum(cosines[first], np.float32(1))
        order = np.lexsort((keys, -cosines))
        return DuplicatePairs(keys[order] // self.count, keys[order] % self.count, cosines[order], compared, of)


def duplicate_figures(store: Graph, most: int, seed: int) -> dict[str, Any]:
    """Near-duplicates as JSON values.

    Returns:
        ``threshold``, and for ``queries`` and ``passages``: ``compared`` (rows looked at), ``of`` (queries, or passages
        that a query found), ``pairs``, ``near`` (rows with a near-duplicate), ``share`` (of those compared),
        ``same_text`` (pairs of equal normalised text among the most similar), and ``examples`` (``cosine`` and two of
        ``id`` and ``text``), most similar first, no row twice.
    """
    queries, passages = similar_queries(store, seed), similar_passages(store, seed)
    with store.texts() as texts:

        def of_query(row: int) -> tuple[str, str]:
            query = texts.query(row)
            return query.id, query.text

        def of_passage(row: int) -> tuple[str, str]:
            passage = texts.passage(row)
            return passage.id, passage.full_text

        return {
            "threshold": NEAR_DUPLICATE,
            "queries": _figures(queries, of_query, most),
            "passages": _figures(passages, of_passage, most),
        }


def _figures(pairs: DuplicatePairs, read: Callable[[int], tuple[str, str]], most: int) -> dict[str, Any]:
    near = len(np.unique(np.concatenate([pairs.first, pairs.second])))
    same, examples, shown = 0, list[dict[str, Any]](), set[int]()
    for first, second, cosine in zip(
        pairs.first[:TEXTS].tolist(), pairs.second[:TEXTS].tolist(), pairs.cosine[:TEXTS].tolist(), strict=True
    ):
        sides = [read(first), read(second)]
        same += normalised(sides[0][1]) == normalised(sides[1][1])
        if len(examples) < most and not {first, second} & shown:
            shown |= {first, second}
            examples.append({"cosine": cosine, "pair": [{"id": id_, "text": text} for id_, text in sides]})
    return {
        "compared": pairs.compared,
        "of": pairs.of,
        "pairs": len(pairs.first),
        "near": near,
        "share": near / pairs.compared if pairs.compared else 0.0,
        "same_text": same,
        "examples": examples,
    }
