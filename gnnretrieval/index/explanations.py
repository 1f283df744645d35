"""What explains a passage's embedding: questions that moved it, and what a change of the graph would do."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows

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
            prior, local scaling and the nearest question. 1: as trained.
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

    def with_questions(
        self, rows: Rows, scores: NDArray[np.float32], change: GraphChange, vector: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Scores ``(r,)`` of passages after a change, from those of their own vectors, for a question ``(d,)``.

        They differ from ``scores`` only where passages have several vectors.
        """
