"""Near-duplicate queries and passages, found through the graph without comparing all with all.

Two passages with the same content are neighbours of the same queries, and two queries with the same meaning share their
first passages. So passages are compared with the other neighbours of a query, and queries with those that share a first
or second passage. On graphs of three real sets this finds 95 to 100 % of the near-duplicate pairs of queries. Of the
retrieved passages that have a near-duplicate, it finds 73 to 90 % at k = 5 and 89 to 98 % at k = 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.data.inspection.text_figures import NamedText
from gnnretrieval.graph.inspection.agreement import unit_queries
from gnnretrieval.graph.inspection.connectivity import sample_queries
from gnnretrieval.graph.interchange import shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.pages.reports import Figures
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, gather_rows, release

# Minimum cosine of near-duplicates. With MiniLM, pairs of questions at 0.95 and above differ in a word or in word order
# ("Where did water to the west of the Amazon basin flow" / "Where did the water in the Amazon basin flow when moving
# west"), sometimes in a word that matters ("int16" / "int8"), which is why the report shows examples. At 0.90 they ask
# different things about one subject ("Where were the Kikuyu located" / "How did the Kikuyu live"). Pairs of passages at
# 0.95 are variants of one text (scipy's bdtr / bdtrc), at 0.90 related texts (ss2tf / ss2zpk).
NEAR_DUPLICATE = 0.95
QUERIES = 1_000_000  # maximum number of queries compared
PASSAGES_READ = 200_000  # maximum number of neighbours read (300 MB at d = 768); of more, those of a sample of queries
SHARED = 2  # two queries are compared if they share one of this many first passages
WINDOW = 32  # each query is compared with this many queries of the same passage: the next by score
TEXTS = 20_000  # number of most similar pairs to compare texts of
_READ = 16384  # rows read at a time
_FLOATS = 8 * 2**20  # features held at a time: 32 MiB


class DuplicatePairs(NamedTuple):
    """Pairs of rows that are near-duplicates.

    Attributes:
        first: ``(P,)`` the lower row of each pair.
        second: ``(P,)`` the higher row.
        cosine: ``(P,)`` float32, highest first.
        compared: Number of rows that were compared.
        of: Number of rows to compare without sampling.
    """

    first: Rows
    second: Rows
    cosine: NDArray[np.float32]
    compared: int
    of: int


def similar_queries(store: Graph, seed: int, threshold: float = NEAR_DUPLICATE) -> DuplicatePairs:
    """Pairs of queries with a cosine of ``threshold`` or more that share one of their first ``SHARED`` passages.

    The queries of a passage are sorted by score, and each is compared with the next ``WINDOW``. Up to 33 queries of a
    passage are thus all compared with each other.
    """
    rows = sample_queries(store, QUERIES, seed)
    shared = min(SHARED, store.k)
    passage = gather_rows(store.neighbors[:, :shared], rows, np.uint32).ravel()
    score = gather_rows(store.scores[:, :shared], rows).ravel()
    query = np.repeat(rows, shared)
    order = np.lexsort((query, -score, passage))
    passage, query = passage[order], query[order]
    similar_pairs = _Pairs(store.num_queries)
    with progress("near-duplicate queries", len(query), "entries") as meter:
        for part in blocks(len(query), max(1, _FLOATS // store.dimension)):
            beyond = slice(part.start, part.stop + WINDOW)
            rows_here, passages = query[beyond], passage[beyond]
            unit = unit_queries(store, rows_here)
            # entries are sorted by passage, so those of one passage are compared by shifting the block against itself
            for distance in range(1, WINDOW + 1):
                left = np.flatnonzero(passages[:-distance] == passages[distance:])
                left = left[left < part.stop - part.start]
                if not len(left):
                    break  # no passage of the block has more queries
                near = np.einsum("ij,ij->i", unit[left], unit[left + distance])
                similar = near >= threshold
                similar_pairs.add(rows_here[left[similar]], rows_here[left[similar] + distance], near[similar])
            release(store.query_features)
            meter.advance(part.stop - part.start)
    return similar_pairs.sorted(len(rows), len(shown_queries(store)))


def similar_passages(store: Graph, seed: int, threshold: float = NEAR_DUPLICATE) -> DuplicatePairs:
    """Pairs of passages with a cosine of ``threshold`` or more that are neighbours of the same query."""
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
    similar_pairs = _Pairs(store.num_passages)
    above = np.triu(np.ones((k, k), dtype=bool), 1)
    with progress("near-duplicate passages", len(queries), "queries") as meter:
        for part in blocks(len(queries), max(1, _FLOATS // (k * store.dimension))):
            needed, index = np.unique(places[part], return_inverse=True)
            unit = vectors[needed].astype(np.float32)
            unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.float32(1e-12))
            near = unit[index.reshape(-1, k)]  # (b, k, d)
            cosine = near @ near.transpose(0, 2, 1)  # (b, k, k)
            number, left, right = np.nonzero((cosine >= threshold) & above)
            passages = around[part]
            similar_pairs.add(passages[number, left], passages[number, right], cosine[number, left, right])
            meter.advance(part.stop - part.start)
    return similar_pairs.sorted(len(rows), int((store.degrees() > 0).sum()))


class _Pairs:
    """Collects pairs of rows below ``count``; each pair counts once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._keys: list[Rows] = []
        self._cosines: list[NDArray[np.float32]] = []

    def add(self, left: Rows, right: Rows, cosine: NDArray[np.float32]) -> None:
        if len(left):
            keys = np.minimum(left, right).astype(np.int64) * self.count + np.maximum(left, right)
            keys, first = np.unique(keys, return_index=True)
            self._keys.append(keys)
            self._cosines.append(cosine[first])

    def sorted(self, compared: int, of: int) -> DuplicatePairs:
        """The pairs, highest cosine first; ties by row."""
        keys = np.concatenate([np.empty(0, dtype=np.int64), *self._keys])
        cosines = np.concatenate([np.empty(0, dtype=np.float32), *self._cosines])
        keys, first = np.unique(keys, return_index=True)
        cosines = np.minimum(cosines[first], np.float32(1))
        order = np.lexsort((keys, -cosines))
        return DuplicatePairs(keys[order] // self.count, keys[order] % self.count, cosines[order], compared, of)


class SimilarPair(Figures):
    """Two texts with similar vectors."""

    cosine: float
    pair: list[NamedText]


class NearRows(Figures):
    """Near-duplicates among the queries, or among the passages."""

    compared: int
    of: int
    """All queries, or all passages that are joined to a query."""
    pairs: int
    near: int
    """Queries or passages with a near-duplicate."""
    share: float
    """``near`` / ``compared``."""
    same_text: int
    """Pairs with equal normalised text, among the most similar ones."""
    examples: list[SimilarPair]
    """The most similar pairs; no text is in two of them."""


class NearDuplicates(Figures):
    """Near-duplicates in a graph."""

    threshold: float
    """Least cosine."""
    queries: NearRows
    passages: NearRows


def duplicate_figures(store: Graph, most: int, seed: int) -> NearDuplicates:
    """Near-duplicates among the queries and passages, each with at most ``most`` examples."""
    queries, passages = similar_queries(store, seed), similar_passages(store, seed)
    with store.texts() as texts:

        def of_query(row: int) -> NamedText:
            query = texts.query(row)
            return NamedText(id=query.id, text=query.text)

        def of_passage(row: int) -> NamedText:
            passage = texts.passage(row)
            return NamedText(id=passage.id, text=passage.full_text)

        return NearDuplicates(
            threshold=NEAR_DUPLICATE,
            queries=_figures(queries, of_query, most),
            passages=_figures(passages, of_passage, most),
        )


def _figures(pairs: DuplicatePairs, read: Callable[[int], NamedText], most: int) -> NearRows:
    near = len(np.unique(np.concatenate([pairs.first, pairs.second])))
    same, examples, shown = 0, list[SimilarPair](), set[int]()
    for first, second, cosine in zip(
        pairs.first[:TEXTS].tolist(), pairs.second[:TEXTS].tolist(), pairs.cosine[:TEXTS].tolist(), strict=True
    ):
        sides = [read(first), read(second)]
        same += normalised(sides[0].text) == normalised(sides[1].text)
        if len(examples) < most and not {first, second} & shown:
            shown |= {first, second}
            examples.append(SimilarPair(cosine=cosine, pair=sides))
    return NearRows(
        compared=pairs.compared,
        of=pairs.of,
        pairs=len(pairs.first),
        near=near,
        share=near / pairs.compared if pairs.compared else 0.0,
        same_text=same,
        examples=examples,
    )
