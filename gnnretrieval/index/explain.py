"""Why a passage is where it is: the questions that moved it, their attention, and the gate (eq. 8-10)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.store import GraphStore
from gnnretrieval.training.graph_tensors import GraphTensors
from gnnretrieval.training.model import GNNEncoderModel

_BLOCK = 65536


class Neighbor(NamedTuple):
    """A training question that found a passage.

    Attributes:
        id: Its id.
        text: Its text.
        attention: Its weight in the passage's context, mean over heads.
        labelled: Whether the passage is judged relevant to it.
    """

    id: str
    text: str
    attention: float
    labelled: bool


class Explanation(NamedTuple):
    """How a passage's embedding came about.

    Attributes:
        neighbors: The questions that found it, by attention, highest first.
        own_attention: Weight of the passage itself in its context.
        mean_gate: Mean of the filter gate over dimensions, 0 to 1.
        context_scale: ``λ``: factor on the gated context.
        shift: Cosine between its embedding before and after.
    """

    neighbors: list[Neighbor]
    own_attention: float
    mean_gate: float
    context_scale: float
    shift: float


class Explainer:
    """Explains embeddings of a GNN-encoder over its graph.

    Raises:
        ArtifactError: the model was trained over another kind of graph.
    """

    def __init__(self, model: GNNEncoderModel, store: GraphStore) -> None:
        model.require_fits(store)
        self.store = store
        self.model = model.load()
        self._tensors = GraphTensors(store)
        self._texts = store.texts()

    @torch.no_grad()
    def explain(self, row: int, most: int = 5) -> Explanation:
        """Explain the embedding of the passage at ``row``, with its ``most`` heaviest questions."""
        subgraph = self.store.subgraph(np.array([row]))
        batch = self._tensors.tensors(subgraph)
        model = self.model
        queries = model.interactive_queries(batch.queries, batch.sources, batch.to_queries, batch.query_edge_features)
        layer = (batch.passages, queries, batch.to_passages, batch.passage_edge_features)
        attention, own = model.passage_attention(*layer)
        context = model.passage_context(*layer)
        gate = model.filter_gate.gate(context, batch.passages)
        after = batch.passages + model.context_scale * gate * context
        weights = attention.mean(1)  # (E,)
        labelled = set(self.store.labels[self.store.labels[:, 1] == row, 0].tolist())
        neighbors = []
        for edge in weights.argsort(descending=True, stable=True)[:most].tolist():
            query = self._texts.query(int(subgraph.queries[subgraph.passage_index[edge]]))
            neighbors.append(Neighbor(query.id, query.text, float(weights[edge]), query.row in labelled))
        return Explanation(
            neighbors=neighbors,
            own_attention=float(own.mean()),
            mean_gate=float(gate.mean()),
            context_scale=float(model.context_scale),
            shift=float(torch.cosine_similarity(batch.passages, after).mean()),
        )


def rank_of(row: int, query: NDArray[np.float32], vectors: NDArray[np.floating], similarity: Similarity) -> int:
    """Rank, from 1, of the passage at ``row`` for one query ``(d,)`` among all ``vectors`` ``(m, d)``, blockwise.

    Passages of equal score rank below it.
    """
    asked = similarity.prepare_array(query)
    score = float(similarity.prepare_array(vectors[row : row + 1])[0] @ asked)
    above = 0
    for start in range(0, len(vectors), _BLOCK):
        scores = similarity.prepare_array(vectors[start : start + _BLOCK]) @ asked
        if start <= row < start + len(scores):
            scores[row - start] = -np.inf
        above += int((scores > score).sum())
    return above + 1
