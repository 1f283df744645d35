"""Explaining a passage's embedding: the training questions that moved it, their attention, and the gate (eq. 8-10)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows, Subgraph
from gnnretrieval.nn.gnn_encoder import GraphBatch
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
from gnnretrieval.training.gnn.embedding import MEMORY, gated_contexts
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_memory import fits_memory, require_fit
from gnnretrieval.training.gnn.message_part import as_added, part_around
from gnnretrieval.training.gnn.messages import TrainedMessages
from gnnretrieval.training.gnn.model import GNNEncoderModel

_BLOCK = 8192  # passages read at a time
_SAME = 0.9995  # least cosine that two digits show as 1.00


class Neighbor(NamedTuple):
    """A training question joined to a passage.

    Attributes:
        id: Its id.
        text: Its text.
        attention: Its weight in the passage's context, mean over heads; with layer = linear its weight in the passage's
            vector, negative if it pushes the passage away.
        labelled: Whether the passage is judged relevant to it.
    """

    id: str
    text: str
    attention: float
    labelled: bool


class Explanation(NamedTuple):
    """Explanation of a passage's embedding.

    Attributes:
        neighbors: The training questions joined to it, by absolute attention, highest first; with layer = linear only
            those with a weight.
        own_attention: Weight of the passage itself in its context.
        mean_gate: Mean of the filter gate over dimensions, 0 to 1; None with layer = linear, which has no gate.
        context_scale: ``λ``, the factor on the gated context; None with layer = linear.
        shift: Cosine between its embedding before and after.
    """

    neighbors: list[Neighbor]
    own_attention: float
    mean_gate: float | None
    context_scale: float | None
    shift: float

    @property
    def gate(self) -> str:
        """Gate and context scale in words, with a comma at the end; empty with layer = linear."""
        if self.mean_gate is None:
            return ""
        return f"mean gate {self.mean_gate:.2f}, context scale {self.context_scale:g}, "

    @property
    def without_neighbors(self) -> str:
        """The passage's embedding without neighbours, in words."""
        if self.mean_gate is not None:
            return "no training question retrieved it: it has its self-loop only"
        if self.shift > _SAME:
            return "no training question moved it: it has the dual-encoder's direction"
        return "no training question moved it: the linear heads did, which move all passages"


class Attention(NamedTuple):
    """Weights of a node's context (eq. 4), mean over heads.

    The weights of all neighbours and ``own`` sum to 1; with layer = linear, rejection adds negative weights to these.

    Attributes:
        weights: Weight of each neighbour that is shown, by its id.
        own: Weight of the node itself, on its self-loop.
        mean_gate: Mean of a passage's filter gate over dimensions, 0 to 1; None for a query and with layer = linear,
            which have no gate.
    """

    weights: dict[str, float]
    own: float
    mean_gate: float | None


class GraphChange(NamedTuple):
    """A change of the graph that is tried and not saved.

    Attributes:
        without: Rows of the queries that are left out.
        vectors: ``(a, d)`` vectors of added questions.
        neighbors: ``(a, k)`` passages that these retrieve.
        passage: Row of the passage that is labelled relevant to them.
        scale: Factor on the messages: on ``λ``; with layer = linear on the weights of label mean, rejection, updates,
            prior and local scaling. 1: as trained.
    """

    without: Rows
    vectors: NDArray[np.floating]
    neighbors: Rows
    passage: int
    scale: float = 1.0


class NoWhatIf(GnnRetrievalError):
    """Raised for a change that cannot be computed."""


class Explainer(Protocol):
    """Explains embeddings of a GNN-encoder over its graph."""

    store: Graph

    def explain(self, row: int, most: int = 5) -> Explanation:
        """Explain the embedding of the passage at ``row``, with its ``most`` heaviest questions."""

    def nearest_question(self, row: int, vector: NDArray[np.floating]) -> int | None:
        """Row of the training question by which a question's vector ``(d,)`` finds the passage at ``row``.

        None: by the passage's own vector, or the graph's vectors do not fit into memory.
        """

    def attention_of_passage(self, row: int) -> Attention:
        """Weight of each question in the passage at ``row``."""

    def attention_of_query(self, row: int) -> Attention:
        """Weight of each passage in the query at ``row``, which must be in the graph."""

    @property
    def no_what_if(self) -> str | None:
        """Why its messages cannot be changed, in one sentence; None: they can."""

    def vectors_if(self, rows: Rows, change: GraphChange) -> NDArray[np.float32]:
        """Vectors ``(r, d)`` of the passages at distinct ``rows`` as embedding gives them after a change of the graph.

        In passage updates, all other questions pull and push as they did.

        Raises:
            GnnRetrievalError: This layer cannot take added questions, or the passages depend on too many nodes.
        """


def explainer_of(
    model: GNNEncoderModel, store: Graph, features: Features | None = None, *, questions: bool = False
) -> Explainer:
    """The explainer for a model's layer.

    Args:
        model: The GNN-encoder.
        store: The graph.
        features: Features from the dual-encoder that was trained with the model, if one was.
        questions: Whether passages have several vectors, one for each training question; their own is explained.

    Raises:
        ArtifactError: The model was trained over another kind of graph, or the features are another encoder's; or it
            has no messages for several vectors.
    """
    model.require_fits(store)
    view = model.view(store, features)
    if questions:
        return MessagesExplainer(view, model.load_questions())
    return MessagesExplainer(view, model.load_messages()) if model.is_linear else AttentionExplainer(model, view)


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
        if kept.questions:
            return "Passages have several vectors here, so nothing can be tried: serve the index of one vector each."
        if self._graph is None:
            return "The graph's vectors do not fit into memory, so nothing can be tried."
        if kept.passes or kept.mean or kept.rounds * kept.step_size or kept.prior or kept.scaling:
            return None
        return "Training kept no messages from questions: no question moves a passage, so nothing can be tried."

    @torch.no_grad()
    def vectors_if(self, rows: Rows, change: GraphChange) -> NDArray[np.float32]:
        """Vectors ``(r, d)`` of some passages after a change, on the part of the graph that they depend on."""
        assert self._graph is not None  # see no_what_if
        hidden = torch.zeros(len(self._graph.queries), dtype=torch.bool)
        hidden[change.without] = True
        kept = self._trained.messages
        messages = kept._replace(
            mean=change.scale * kept.mean,
            step_size=change.scale * kept.step_size,
            prior=change.scale * kept.prior,
            scaling=change.scale * kept.scaling,
        )
        added = as_added(self._graph, self.store, change.vectors, change.neighbors, change.passage)
        part = part_around(self._graph.without(hidden), self.store, rows, messages.rounds, added)
        heads, by = self._trained.heads, self._moves_if(rows, change)
        if by is None:
            return message_vectors(part, heads, messages, most=len(rows)).numpy()
        return moved_vectors(part, heads, messages, by).numpy()

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


class AttentionExplainer:
    """Explains embeddings of all layers except linear: attention (eq. 4, 8) or other weights, and gate (eq. 9, 10).

    Args:
        model: The GNN-encoder.
        store: The graph as the model sees it.
    """

    def __init__(self, model: GNNEncoderModel, store: Graph) -> None:
        self.store = store
        self.model = model.load()
        self._tensors = GraphTensors(store)
        self._texts = store.texts()

    @torch.no_grad()
    def explain(self, row: int, most: int = 5) -> Explanation:
        """Explain the embedding of the passage at ``row``, with its ``most`` heaviest questions."""
        subgraph = self.store.subgraph(np.array([row]))
        batch = self._tensors.tensors(subgraph)
        attention, own, context, gate = self._second_layer(batch)
        after = batch.passages + self.model.context_scale * gate * context
        weights = attention.mean(1)  # (E,)
        neighbors = []
        for edge in weights.argsort(descending=True, stable=True)[:most].tolist():
            query = self._texts.query(int(subgraph.queries[subgraph.passage_index[edge]]))
            labelled = (self._texts.relevance(query.row, row) or 0) > 0
            neighbors.append(Neighbor(query.id, query.text, float(weights[edge]), labelled))
        return Explanation(
            neighbors=neighbors,
            own_attention=float(own.mean()),
            mean_gate=float(gate.mean()),
            context_scale=float(self.model.context_scale),
            shift=float(torch.cosine_similarity(batch.passages, after).mean()),
        )

    def nearest_question(self, row: int, vector: NDArray[np.floating]) -> int | None:
        """None: these layers make one vector a passage."""
        return None

    @torch.no_grad()
    def attention_of_passage(self, row: int) -> Attention:
        """Attention of layer 2: weight of each question in the passage at ``row``."""
        subgraph = self.store.subgraph(np.array([row]))
        attention, own, _, gate = self._second_layer(self._tensors.tensors(subgraph))
        queries = subgraph.queries[subgraph.passage_index]
        weights = {
            self._texts.query(query).id: weight
            for query, weight in zip(queries.tolist(), attention.mean(1).tolist(), strict=True)
        }
        return Attention(weights, float(own.mean()), float(gate.mean()))

    @torch.no_grad()
    def attention_of_query(self, row: int) -> Attention:
        """Attention of layer 1: weight of each passage in the query at ``row``, which must be in the graph."""
        neighbors = self.store.neighbors[row].astype(np.int64)
        sources, index = np.unique(neighbors, return_inverse=True)
        k, none = len(neighbors), np.empty(0, dtype=np.int64)
        subgraph = Subgraph(
            passages=none,
            queries=np.array([row]),
            sources=sources,
            passage_edges=none,
            passage_index=none,
            passage_offsets=np.zeros(1, dtype=np.int64),
            query_edges=row * self.store.stride + np.arange(k),
            query_index=index,
            query_offsets=np.array([0, k]),
        )
        batch = self._tensors.tensors(subgraph)
        attention, own = self.model.query_attention(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        weights = {
            self._texts.passage(passage).id: weight
            for passage, weight in zip(neighbors.tolist(), attention.mean(1).tolist(), strict=True)
            if passage not in self.store.hidden
        }
        return Attention(weights, float(own.mean()), None)

    no_what_if: str | None = None

    def vectors_if(self, rows: Rows, change: GraphChange) -> NDArray[np.float32]:
        """Vectors ``(r, d)`` of some passages after a change without added questions."""
        if len(change.vectors):
            raise NoWhatIf(
                "A typed question has no edge features, which this layer reads: tick questions off, or change λ."
            )
        visible = np.ones(self.store.num_queries, dtype=bool)
        visible[change.without] = False
        order = np.argsort(rows, kind="stable")
        parts = gated_contexts(self.model, self.store, visible=self.store.among(visible), only=rows[order])
        scale = change.scale * self.model.context_scale
        blocks = [self.store.similarity.prepare(passages + scale * context) for _, passages, context in parts]
        vectors = np.empty((len(rows), self.store.dimension), dtype=np.float32)
        vectors[order] = torch.cat(blocks).numpy()
        return vectors

    def _second_layer(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Attention of eq. 8 (edges ``(E, heads)``, self-loops ``(T, heads)``), context and gate ``(T, d)``."""
        model = self.model
        queries = model.interactive_queries(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        layer = (batch.passages, queries, batch.to_passages, batch.passage_edge_features, batch.passage_loop_features)
        attention, own = model.passage_attention(*layer)
        context = model.passage_context(*layer)
        return attention, own, context, model.filter_gate.gate(context, batch.passages)
