"""Explaining a passage's embedding with layer = linear: the questions that its messages come from."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.index.explanations import Attention, Explanation, GraphChange, Neighbor
from gnnretrieval.nn.label_messages import (
    Computed,
    MessageGraph,
    Messages,
    Moves,
    message_vectors,
    moved_vectors,
    moves,
    question_vectors,
    rejections,
)
from gnnretrieval.nn.passage_updates import pull_of_another
from gnnretrieval.training.gnn.corpus_part import message_blocks
from gnnretrieval.training.gnn.embedding import MEMORY
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import fits_memory, require_fit
from gnnretrieval.training.gnn.message_part import as_added, part_around
from gnnretrieval.training.gnn.messages import TrainedMessages


class MessagesExplainer:
    """Explains embeddings of layer = linear: weights of the label mean, of rejection, and of the updates' pulls.

    A graph that does not fit into memory is read passage by passage, and nothing can be tried on it.

    Args:
        store: The graph as the model sees it.
        trained: Heads and messages.
    """

    @torch.no_grad()
    def __init__(self, store: Graph, trained: TrainedMessages) -> None:
        self.store, self._trained = store, trained
        heads, messages = trained
        self._graph: MessageGraph | None = None
        self._rejections: Tensor | None = None  # (n, k)
        self._moves: Moves | None = None
        self._pulls: dict[tuple[int, int], float] = {}  # by query and passage
        if messages.needs_all or fits_memory(store):
            require_fit(store)
            self._graph = message_graph(store)
            computed = Computed()
            self._rejections = rejections(self._graph, heads, messages, computed)
            if messages.passes:
                self._moves = moves(self._graph, heads, messages, computed)
                pairs = map(tuple, self._graph.labels.tolist())
                self._pulls = dict(zip(pairs, self._moves.pulls.tolist(), strict=True))
                self._vectors = moved_vectors(self._graph, heads, messages, self._moves.by, computed)
            else:
                self._vectors = message_vectors(self._graph, heads, messages, computed)
        self._texts = store.texts()

    def explain(self, row: int, most: int = 5) -> Explanation:
        """Explain the embedding of the passage at ``row``, with its ``most`` heaviest questions."""
        queries, weights, labelled, own = self._weights(row)
        neighbors = []
        for at in np.argsort(-np.abs(weights), kind="stable")[: min(most, np.count_nonzero(weights))].tolist():
            query = self._texts.query(int(queries[at]))
            neighbors.append(Neighbor(query.id, query.text, float(weights[at]), bool(labelled[at])))
        before, after = self._before_and_after(row)
        return Explanation(neighbors, own, None, None, float(torch.cosine_similarity(before, after, dim=0)))

    @torch.no_grad()
    def nearest_question(self, row: int, vector: NDArray[np.floating]) -> int | None:
        """As :meth:`Explainer.nearest_question`."""
        graph, (heads, messages) = self._graph, self._trained
        if graph is None or not messages.questions:
            return None
        own, asked = graph.labels[graph.labels[:, 1] == row, 0], torch.from_numpy(vector).float()
        scores = question_vectors(graph._replace(queries=graph.queries[own]), heads, messages) @ asked
        if not len(own) or scores.max() <= self._vectors[row] @ asked:
            return None
        return int(own[scores.argmax()])

    def attention_of_passage(self, row: int) -> Attention:
        """Weight of each question in the vector of the passage at ``row``."""
        queries, weights, _, own = self._weights(row)
        ids = (self._texts.query(query).id for query in queries.tolist())
        return Attention(dict(zip(ids, weights.tolist(), strict=True)), own, None)

    def attention_of_query(self, row: int) -> Attention:
        """Weight 0 for each passage: with layer = linear, queries receive no messages from passages."""
        passages = np.unique(self.store.neighbors[row].astype(np.int64)).tolist()
        shown = (passage for passage in passages if passage not in self.store.hidden)
        return Attention({self._texts.passage(passage).id: 0.0 for passage in shown}, 1.0, None)

    @property
    def no_what_if(self) -> str | None:
        """Why its messages cannot be changed; None: they can."""
        kept = self._trained.messages
        if self._graph is None:
            return "The graph's vectors do not fit into memory, so nothing can be tried."
        if kept.questions or kept.passes or kept.mean or kept.rounds * kept.step_size or kept.prior or kept.scaling:
            return None
        return "Training kept no messages from questions: no question moves a passage, so nothing can be tried."

    @torch.no_grad()
    def vectors_if(self, rows: Rows, change: GraphChange) -> NDArray[np.float32]:
        """Vectors ``(r, d)`` of some passages after a change, on the part of the graph that they depend on."""
        assert self._graph is not None  # see no_what_if
        hidden = torch.zeros(len(self._graph.queries), dtype=torch.bool)
        hidden[change.without] = True
        messages = self._messages_if(change)
        added = as_added(self._graph, self.store, change.vectors, change.neighbors, change.passage)
        part = part_around(self._graph.without(hidden), self.store, rows, messages.rounds, added)
        heads, by = self._trained.heads, self._moves_if(rows, change)
        if by is None:
            return message_vectors(part, heads, messages, most=len(rows)).numpy()
        return moved_vectors(part, heads, messages, by).numpy()

    @torch.no_grad()
    def with_questions(
        self, rows: Rows, scores: NDArray[np.float32], change: GraphChange, vector: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """As :meth:`Explainer.with_questions`, by the equation of :func:`several_vectors`."""
        graph, messages = self._graph, self._messages_if(change)
        if graph is None or not messages.questions:
            return scores
        place, best = {row: number for number, row in enumerate(rows.tolist())}, scores.copy()
        query, passage = graph.labels.numpy().T
        stays = np.isin(passage, rows) & ~np.isin(query, change.without)
        added = as_added(graph, self.store, change.vectors, change.neighbors, change.passage)
        joined = graph._replace(queries=torch.cat([graph.queries[query[stays]], added.queries]))
        found = question_vectors(joined, self._trained.heads, messages) @ torch.from_numpy(vector)
        of = [*passage[stays].tolist(), *[change.passage] * len(added.queries)]
        for row, score in zip(of, found.tolist(), strict=True):
            if row in place:
                best[place[row]] = max(best[place[row]], score)
        return scores + messages.questions * (best - scores)

    def _messages_if(self, change: GraphChange) -> Messages:
        """The messages after a change of their weights."""
        kept, scale = self._trained.messages, change.scale
        return kept._replace(
            mean=scale * kept.mean,
            step_size=scale * kept.step_size,
            prior=scale * kept.prior,
            scaling=scale * kept.scaling,
            questions=min(scale * kept.questions, 1.0),
        )

    def _moves_if(self, rows: Rows, change: GraphChange) -> Tensor | None:
        """Moves ``(r, d)`` of passages after a change: all other questions pull and push as they did."""
        graph, kept, made = self._graph, self._trained.messages, self._moves
        if graph is None or made is None:
            return None
        by, place = made.by[rows].clone(), {row: number for number, row in enumerate(rows.tolist())}
        for query in change.without.tolist():
            for row in graph.labels[graph.labels[:, 0] == query, 1].tolist():
                if row in place:
                    by[place[row]] -= self._pulls[query, row] * self._compared(graph.queries[query])
        if change.passage in place:
            added = as_added(graph, self.store, change.vectors, change.neighbors, change.passage)
            for query in self._compared(added.queries):
                how = (change.passage, query, kept.passes, kept.update_size)
                by[place[change.passage]] += pull_of_another(graph, made.ends, *how) * query
        return change.scale * by

    def _compared(self, queries: Tensor) -> Tensor:
        """Queries as they are compared with passages, in the space of the heads."""
        heads = self._trained.heads
        assert self._graph is not None
        return queries if heads is None else self._graph.prepare(queries @ heads.queries.T)

    def _weights(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_], float]:
        """Queries joined to a passage, their weights, whether each is labelled with it, and the passage's own weight.

        The weights are those of the equations: of the label mean before the vector gets unit length, of rejection and
        of the updates' pulls after that.
        """
        edges, _ = self.store.found_by(np.array([row]))
        joined, ranks = np.divmod(edges.astype(np.int64), self.store.stride)
        own, mean = np.unique(self.store.labels[self.store.labels[:, 1] == row, 0]), self._trained.messages.mean
        others = ~np.isin(joined, own)
        pushes = np.zeros(int(others.sum()))
        if self._rejections is not None:
            pushes = -self._rejections[joined[others], ranks[others]].double().numpy()
        queries = np.concatenate([own, joined[others]])
        pulled = np.array([self._pulls.get((query, row), 0.0) for query in own.tolist()])
        weights = np.concatenate([mean / max(len(own), 1) + pulled, pushes])
        return queries, weights, np.arange(len(queries)) < len(own), 1 - mean if len(own) else 1.0

    @torch.no_grad()
    def _before_and_after(self, row: int) -> list[Tensor]:
        """The dual-encoder's vector of a passage, and the model's ``(d,)``."""
        if self._graph is not None:
            return [self._graph.passages[row], self._vectors[row]]
        only, (heads, messages) = np.array([row]), self._trained
        before = message_blocks(None, Messages(), self.store, MEMORY, only)
        after = message_blocks(heads, messages, self.store, MEMORY, only)
        return [torch.from_numpy(vectors[0]) for _, vectors in (*before, *after)]
