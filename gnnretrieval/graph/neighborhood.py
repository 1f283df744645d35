"""One node and who it is joined to, with texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnretrieval.data.text_store import PassageRow, QueryRow
from gnnretrieval.graph.store import GraphStore


class NeighborNode(NamedTuple):
    """A node at the other end of an edge.

    Attributes:
        id: Its id.
        text: Its text, title first.
        score: The dual-encoder's similarity on the edge.
        rank: Rank of the passage for the query, from 1.
        labelled: Whether the pair is judged relevant.
    """

    id: str
    text: str
    score: float
    rank: int
    labelled: bool


def queries_of_passage(store: GraphStore, passage_id: str) -> tuple[PassageRow, list[NeighborNode]]:
    """A passage and the queries that found it, highest score first.

    Raises:
        InputError: there is no such passage.
    """
    with store.texts() as texts:
        passage = texts.passage_by_id(passage_id)
        edges = store.edges[store.indptr[passage.row] : store.indptr[passage.row + 1]]
        labelled = set(store.labels[store.labels[:, 1] == passage.row, 0].tolist())
        found = []
        for edge in edges.tolist():
            query = texts.query(edge // store.k)
            score = float(store.scores[edge // store.k, edge % store.k])
            found.append(NeighborNode(query.id, query.text, score, edge % store.k + 1, query.row in labelled))
    return passage, sorted(found, key=lambda node: -node.score)


def passages_of_query(store: GraphStore, query_id: str) -> tuple[QueryRow, list[NeighborNode]]:
    """A training query and the passages it found, in retrieval order.

    Raises:
        InputError: there is no such query in the graph.
    """
    with store.texts() as texts:
        query = texts.query_by_id(query_id)
        labelled = set(store.labels[store.labels[:, 0] == query.row, 1].tolist())
        found = []
        for rank, (row, score) in enumerate(zip(store.neighbors[query.row], store.scores[query.row], strict=True), 1):
            passage = texts.passage(int(row))
            found.append(
                NeighborNode(passage.id, passage.full_text, float(np.float32(score)), rank, int(row) in labelled)
            )
    return query, found
