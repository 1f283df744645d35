"""The part of a message graph that the vectors of some passages depend on, with questions left out or added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.label_messages import MessageGraph, bank_rows

MOST_NODES = 50_000  # passages and queries of a part


class Added(NamedTuple):
    """Questions that are put into a graph; each is labelled with one passage.

    Attributes:
        queries: ``(a, d)``, as in :class:`~gnnretrieval.nn.label_messages.MessageGraph`.
        neighbors: ``(a, k)`` int64, passages that each retrieved.
        passages: ``(a,)`` int64, the relevant passage of each.
    """

    queries: Tensor
    neighbors: Tensor
    passages: Tensor


def part_around(graph: MessageGraph, store: Graph, targets: Rows, rounds: int, added: Added) -> MessageGraph:
    """The part of a graph on which ``targets`` get exactly the vectors that they get on all of it.

    A round of rejection moves a passage by the attention of the queries that retrieved it. This attention depends on
    all passages of these queries, so each round takes the part one query and one passage further.

    Args:
        graph: The whole graph, without the questions that are left out.
        store: The graph's store, for the queries that retrieved a passage.
        targets: ``(T,)`` distinct rows; they are the first ``T`` passages of the part.
        rounds: Number of rejection rounds.
        added: Questions that are added.

    Raises:
        GnnRetrievalError: The part has more than :data:`MOST_NODES` nodes.
    """
    visible, labels = graph.visible.numpy(), graph.labels.numpy()
    passages, queries = targets, np.empty(0, dtype=np.int64)
    for _ in range(rounds):
        queries = np.unique(store.found_by(passages, visible)[0] // store.stride)
        _require_few(len(queries))
        reached = (graph.neighbors[queries].numpy().ravel(), labels[np.isin(labels[:, 0], queries), 1])
        passages = np.unique(np.concatenate([passages, *reached, added.neighbors.numpy().ravel(), added.passages]))
        _require_few(len(passages))
    passages = np.concatenate([targets, np.setdiff1d(passages, targets)])
    labels = labels[np.isin(labels[:, 1], passages)]
    rows = np.union1d(queries, labels[:, 0])
    _require_few(len(rows) + len(passages))
    # from rows of the whole graph to rows of the part
    place = np.zeros(len(graph.passages), dtype=np.int64)
    place[passages] = np.arange(len(passages))
    n, a = len(rows), len(added.queries)
    own = np.stack([np.searchsorted(rows, labels[:, 0]), place[labels[:, 1]]], axis=1)
    within = np.isin(added.passages.numpy(), passages)
    new = np.stack([np.arange(n, n + a), place[added.passages.numpy()]], axis=1)[within]
    return MessageGraph(
        graph.passages[passages],
        torch.cat([graph.queries[rows], added.queries]),
        torch.from_numpy(place[torch.cat([graph.neighbors[rows], added.neighbors]).numpy()]),
        torch.from_numpy(np.concatenate([own, new])),
        # The others are here for their labels; without rounds, nobody rejects.
        torch.from_numpy(np.concatenate([np.isin(rows, queries), np.full(a, rounds > 0)])),
        graph.normalize,
        graph.scale,
        bank=_bank(graph, added),
    )


def _bank(graph: MessageGraph, added: Added) -> Tensor:
    """The queries of the whole graph among which nearness is searched, those that are added included."""
    n = len(graph.queries)
    rows = bank_rows(torch.cat([graph.visible, torch.ones(len(added.queries), dtype=torch.bool)]))
    return torch.cat([graph.queries[rows[rows < n]], added.queries[rows[rows >= n] - n]])


def _require_few(count: int) -> None:
    if count > MOST_NODES:
        raise TooLarge(
            f"The vector of this passage depends on more than {MOST_NODES:,} passages and questions, by the rounds of "
            "rejection: too many to compute it again at once."
        )


class TooLarge(GnnRetrievalError):
    """Raised for a part that is too large to be computed at once."""


def no_additions(graph: MessageGraph) -> Added:
    """No questions."""
    width = graph.neighbors.shape[1]
    return Added(graph.queries[:0], torch.empty((0, width), dtype=torch.int64), torch.empty(0, dtype=torch.int64))


def as_added(graph: MessageGraph, store: Graph, vectors: NDArray[np.floating], neighbors: Rows, passage: int) -> Added:
    """Questions with the dual-encoder's vectors ``(a, d)`` and retrieved passages ``(a, k)``, labelled with a passage.

    Vectors are rounded as the store rounds them. Those of a dot-product encoder are divided by the length that the
    graph's are divided by.
    """
    if not len(vectors):
        return no_additions(graph)
    rounded = torch.from_numpy(store.similarity.prepare_array(vectors.astype(np.float16)))
    if not graph.normalize and len(graph.queries):
        longest = int(graph.queries.norm(dim=1).argmax())  # any other may be zero, and say nothing of the factor
        stored = float(np.linalg.norm(store.query_features[longest].astype(np.float32)))
        rounded = rounded * (float(graph.queries[longest].norm()) / max(stored, 1e-12))
    labels = torch.full((len(vectors),), passage)
    return Added(rounded, torch.from_numpy(np.asarray(neighbors, dtype=np.int64)), labels)
