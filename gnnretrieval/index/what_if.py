"""What if: a question's ranking after a change of the graph, which is computed and not saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.graph.edges.labels import with_labels
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.index.comparison import MovedHit, Ranked, moved_hits
from gnnretrieval.index.explanations import GraphChange, NoWhatIf

if TYPE_CHECKING:
    from gnnretrieval.index.retriever import Retriever

MOST_TOUCHED = 500  # passages computed again


class Change(NamedTuple):
    """A change around one passage.

    Attributes:
        passage: Id of the passage.
        without: Ids of training questions that are left out of the graph.
        asked: Texts of further training questions, which the passage is relevant to.
        scale: Factor on the messages into this passage (:class:`gnnretrieval.index.explanations.GraphChange`).
    """

    passage: str
    without: Sequence[str] = ()
    asked: Sequence[str] = ()
    scale: float = 1.0


class Asked(NamedTuple):
    """What a change needs of encoder and index.

    Attributes:
        vector: The question's vector ``(d,)``.
        ranking: Rows and scores ``(depth,)`` in the index.
        added: Vectors ``(a, d)`` of the added questions.
        neighbors: Passages ``(a, k)`` that these retrieve.
    """

    vector: NDArray[np.float32]
    ranking: Ranked
    added: NDArray[np.float32]
    neighbors: Rows


class Touched(NamedTuple):
    """A passage with a vector that was computed again.

    Attributes:
        id: Its id.
        before: Its rank in the index, from 1; None below the depth.
        after: Its rank after the change.
        cosine: Cosine between its vectors before and after.
    """

    id: str
    before: int | None
    after: int | None
    cosine: float


class WhatIf(NamedTuple):
    """A question's ranking by the GNN-encoder as it is, and after a change.

    Attributes:
        before: Hits as it is, best first, each with its rank after the change.
        after: Hits after the change, each with its rank before.
        depth: Number of passages of each ranking in which ranks were looked up.
        touched: The passages with vectors that were computed again, the changed passage first.
    """

    before: list[MovedHit]
    after: list[MovedHit]
    depth: int
    touched: list[Touched]


def what_if(retriever: Retriever, asked: Asked, change: Change, k: int) -> WhatIf:
    """Rank a question after a change of the graph.

    The vectors of the passage, and of the passages that the changed questions are joined to, are computed again; all
    others keep theirs. ``scale`` is of this passage alone.

    Args:
        retriever: The retriever; only its graph is read, and its own texts.
        asked: The search of the question.
        change: The change.
        k: Number of hits.

    Raises:
        InputError: There is no such passage or training question.
        NoWhatIf: The change cannot be computed.
    """
    explainer, texts = retriever._explainer, retriever.texts
    if explainer.no_what_if is not None:
        raise NoWhatIf(explainer.no_what_if)
    row = texts.passage_by_id(change.passage).row
    without = np.array(sorted({texts.query_by_id(id_).row for id_ in change.without}), dtype=np.int64)
    no_vectors, no_neighbors = asked.added[:0], asked.neighbors[:0]
    asked = asked._replace(neighbors=_labelled(explainer.store, asked, row))
    rows = _touched(retriever, row, without, asked.neighbors)
    # the old vectors are computed too: stored ones are rounded, and rounding would show as movement
    none = GraphChange(without[:0], no_vectors, no_neighbors, row)
    changed = GraphChange(without, asked.added, asked.neighbors, row)
    old, new = explainer.vectors_if(rows, none), explainer.vectors_if(rows, changed)
    prepare = retriever.index.similarity.prepare_array
    question = prepare(asked.vector[None])[0]

    def exact(rows: Rows, vectors: NDArray[np.float32], change: GraphChange) -> NDArray[np.float32]:
        own = prepare(vectors.astype(np.float16)) @ question  # as embeddings are stored
        return explainer.with_questions(rows, own, change, question)

    exact_before, exact_after = exact(rows, old, none), exact(rows, new, changed)
    if change.scale != 1:
        scaled = changed._replace(scale=change.scale)
        new[:1] = explainer.vectors_if(rows[:1], scaled)
        exact_after[:1] = exact(rows[:1], new[:1], scaled)
    # codes of a compressed index give other scores: the change moves those, or nothing would compare with the others
    scores = _in_index(asked.ranking, rows, exact_before) + (exact_after - exact_before)
    after = _replaced(asked.ranking, rows, scores, retriever.num_passages)
    before_ranks, after_ranks = (
        {passage: rank for rank, passage in enumerate(ranking[0].tolist(), 1)} for ranking in (asked.ranking, after)
    )
    cosines = (old * new).sum(1) / np.maximum(np.linalg.norm(old, axis=1) * np.linalg.norm(new, axis=1), 1e-12)
    touched = [
        Touched(texts.passage(passage).id, before_ranks.get(passage), after_ranks.get(passage), cosine)
        for passage, cosine in zip(rows.tolist(), cosines.tolist(), strict=True)
    ]
    return WhatIf(*moved_hits(texts, asked.ranking, after, k), len(asked.ranking[0]), touched)


def _labelled(store: Graph, asked: Asked, row: int) -> Rows:
    """Passages that the added questions are joined to; with label edges the relevant one is among them."""
    if not len(asked.neighbors) or not store.config.get("label_edges", False):
        return asked.neighbors
    labels = np.array([(number, row) for number in range(len(asked.neighbors))], dtype=np.int64)
    vectors = (asked.added.astype(np.float16), store.passage_features, store.similarity)
    return with_labels(asked.neighbors, np.zeros(asked.neighbors.shape, dtype=np.float32), labels, *vectors).rows


def _touched(retriever: Retriever, row: int, without: Rows, neighbors: Rows) -> Rows:
    """The passage first, then the passages that the questions retrieve or are labelled with, except removed ones."""
    store = retriever._explainer.store
    labels = [passage for query in without.tolist() for passage in retriever.texts.relevant_to(query)]
    joined = (store.neighbors[without].ravel().astype(np.int64), neighbors.ravel(), np.array(labels, dtype=np.int64))
    others = np.setdiff1d(np.concatenate(joined), [*retriever.index.removed.tolist(), row])
    if len(others) >= MOST_TOUCHED:
        raise NoWhatIf(f"These questions are joined to more than {MOST_TOUCHED} passages: change fewer at once.")
    return np.concatenate([[row], others]).astype(np.int64)


def _in_index(ranking: Ranked, rows: Rows, exact: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores of passages in a ranking; one that is not there scores exactly, but below its last."""
    known = dict(zip(ranking[0].tolist(), ranking[1].tolist(), strict=True))
    below = np.nextafter(ranking[1][ranking[0] >= 0].min(initial=np.inf), -np.inf)
    scores = [known.get(row, min(score, below)) for row, score in zip(rows.tolist(), exact.tolist(), strict=True)]
    return np.array(scores, dtype=np.float32)


def _replaced(ranking: Ranked, rows: Rows, scores: NDArray[np.float32], count: int) -> Ranked:
    """A ranking with new scores of some passages; a passage that falls below the ranking's last is left out."""
    others = ~np.isin(ranking[0], [*rows.tolist(), -1])
    # below the depth the scores of the other passages are not known, and so no rank
    lowest = ranking[1][others].min(initial=np.inf) if len(ranking[0]) < count else -np.inf
    stays = scores >= lowest
    merged = np.concatenate([ranking[0][others], rows[stays]]), np.concatenate([ranking[1][others], scores[stays]])
    order = np.argsort(-merged[1], kind="stable")
    return merged[0][order], merged[1][order]
