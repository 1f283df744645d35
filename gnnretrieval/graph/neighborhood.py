"""Neighbours of a node with their texts, and neighbourhoods as networkx graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnretrieval.data.text_store import PassageRow, QueryRow, TextStore
from gnnretrieval.encoders.exact_search import ranks_of
from gnnretrieval.errors import InputError, nearest
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.platform.extras import extra

if TYPE_CHECKING:
    import networkx

_SCANNED = 2_000_000  # passages scored at most to rank the label edges around one node


class NeighborNode(NamedTuple):
    """A node at the other end of an edge.

    Attributes:
        id: Its id.
        text: Its text, title first.
        score: The dual-encoder's similarity of the pair.
        rank: Rank of the passage for the query, from 1. If the query did not retrieve it, the dual-encoder's rank among
            all passages; None if the graph is too large to count it.
        labelled: Whether the pair is judged relevant.
        retrieved: Whether the query retrieved the passage; False if only its label joins the two.
    """

    id: str
    text: str
    score: float
    rank: int | None
    labelled: bool
    retrieved: bool


def queries_of_passage(store: Graph, passage_id: str, most: int | None = None) -> tuple[PassageRow, list[NeighborNode]]:
    """A passage and the queries joined to it, highest score first, at most ``most`` (None: all).

    Raises:
        InputError: The graph has no passage with this id; the message suggests the nearest id.
    """
    with store.texts() as texts:
        require_node(store, texts, passage_id, is_query=False)
        passage = texts.passage_by_id(passage_id)
        queries, ranks = _queries_joined_to(store, passage.row)
        scores = np.asarray(store.scores[queries, ranks], dtype=np.float32)
        neighbors, ranker = [], _Ranker(store)
        for place in np.lexsort((queries, -scores))[:most].tolist():
            query = texts.query(int(queries[place]))
            labelled = (texts.relevance(query.row, passage.row) or 0) > 0
            rank, retrieved = ranker.rank(query.row, passage.row)
            neighbors.append(NeighborNode(query.id, query.text, float(scores[place]), rank, labelled, retrieved))
    return passage, neighbors


def passages_of_query(store: Graph, query_id: str, most: int | None = None) -> tuple[QueryRow, list[NeighborNode]]:
    """A query of the graph and the passages it is joined to, in retrieval order, at most ``most`` (None: all).

    Raises:
        InputError: The graph has no query with this id; the message suggests the nearest id.
    """
    with store.texts() as texts:
        require_node(store, texts, query_id, is_query=True)
        query = texts.query_by_id(query_id)
        if store.visible is not None and not store.visible[query.row]:
            return query, []
        neighbors: list[NeighborNode] = []
        ranker = _Ranker(store)
        for row, score in zip(store.neighbors[query.row], store.scores[query.row], strict=True):
            if most is not None and len(neighbors) == most:
                break
            if int(row) in store.hidden:
                continue
            passage = texts.passage(int(row))
            labelled = (texts.relevance(query.row, passage.row) or 0) > 0
            rank, retrieved = ranker.rank(query.row, passage.row)
            similarity = float(np.float32(score))
            neighbors.append(NeighborNode(passage.id, passage.full_text, similarity, rank, labelled, retrieved))
    return query, neighbors


class _Ranker:
    """Ranks of the passages that queries are joined to; a label edge's place among the edges is no rank."""

    def __init__(self, store: Graph) -> None:
        self.store, self.left = store, _SCANNED
        self.removed = np.array(sorted(store.hidden), dtype=np.int64)

    def rank(self, query: int, passage: int) -> tuple[int | None, bool]:
        """Rank of a passage that a query is joined to, from 1, and whether the query retrieved it."""
        store = self.store
        retrieved, _ = store.retrieved(slice(query, query + 1))
        if len(places := np.flatnonzero(retrieved[0] == passage)):
            return int(places[0]) + 1, True
        if self.left < store.num_passages:
            return None, False
        self.left -= store.num_passages
        vector = np.asarray(store.query_features[query], dtype=np.float32)
        (rank,) = ranks_of([passage], vector, store.passage_features, store.similarity, self.removed)
        return rank, False


def count_neighbors(store: Graph, row: int, is_query: bool) -> int:
    """Number of edges of a node."""
    if is_query:
        if store.visible is not None and not store.visible[row]:
            return 0
        return store.k - sum(passage in store.hidden for passage in store.neighbors[row].tolist())
    return len(_queries_joined_to(store, row)[0])


def require_node(store: Graph, texts: TextStore, id_: str, is_query: bool) -> None:
    """Check that an id is in the graph, by index lookups only.

    Raises:
        InputError: The id is unknown or of the other kind; the message suggests the nearest id or the right option.
    """
    if texts.rows_of_queries([id_]) if is_query else texts.rows_of_passages([id_]):
        return
    kind, other = ("query", "passage") if is_query else ("passage", "query")
    if texts.rows_of_passages([id_]) if is_query else texts.rows_of_queries([id_]):
        remedy = f"{'leave out' if is_query else 'add'} is_query = True (--query)"
        raise InputError(f"{id_!r} is a {other}, not a {kind}: {remedy}.", store.path)
    beside = texts.ids_beside("queries" if is_query else "passages", id_)
    among = " among the graph's queries" if is_query else ""
    raise InputError(f"there is no {kind} {id_!r}{among}.{nearest(id_, beside)}", store.path)


def to_networkx(
    store: Graph, ids: Sequence[str], hops: int = 1, is_query: bool = False, most: int = 50
) -> networkx.DiGraph:
    """The neighbourhood of some nodes as a ``networkx.DiGraph``, for drawing and for its algorithms.

    Nodes are ``(kind, id)`` with attributes ``kind`` (``"passage"`` or ``"query"``), ``id``, ``text`` and ``hop``
    (distance from the nearest of ``ids``). Edges point from a query to a passage, with ``score``, ``rank``,
    ``labelled`` and ``retrieved``.

    Args:
        store: The graph.
        ids: Ids of the nodes to start from.
        hops: Maximum distance from them, in edges.
        is_query: Whether ``ids`` are ids of queries, not of passages.
        most: Maximum number of edges followed from a node, the best ones.

    Raises:
        InputError: An id is not in the graph.
        GnnRetrievalError: networkx is not installed.
    """
    graph = extra("networkx", "quickstart", "A neighbourhood as a graph").DiGraph()
    kind, other = ("query", "passage") if is_query else ("passage", "query")
    frontier = list(dict.fromkeys(ids))
    for id_ in frontier:
        center, _ = _around(store, kind, id_, 0)
        text = center.text if isinstance(center, QueryRow) else center.full_text
        graph.add_node((kind, id_), kind=kind, id=id_, text=text, hop=0)
    for hop in range(1, hops + 1):
        reached = []
        for id_ in frontier:
            for node in _around(store, kind, id_, most)[1]:
                if not graph.has_node((other, node.id)):
                    graph.add_node((other, node.id), kind=other, id=node.id, text=node.text, hop=hop)
                    reached.append(node.id)
                ends = ((kind, id_), (other, node.id))
                query, passage = ends if kind == "query" else ends[::-1]
                values = {name: getattr(node, name) for name in ("score", "rank", "labelled", "retrieved")}
                graph.add_edge(query, passage, **values)
        frontier, kind, other = reached, other, kind
    return graph


def _around(store: Graph, kind: str, id_: str, most: int) -> tuple[QueryRow | PassageRow, list[NeighborNode]]:
    return passages_of_query(store, id_, most) if kind == "query" else queries_of_passage(store, id_, most)


def _queries_joined_to(store: Graph, passage: int) -> tuple[Rows, Rows]:
    """Rows of the queries joined to a passage, and its rank for each query, from 0."""
    edges, _ = store.found_by(np.array([passage]))
    return edges // store.stride, edges % store.stride
