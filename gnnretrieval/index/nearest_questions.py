r"""Ranking passages by their vectors and by their nearest training questions.

.. math:: s(q, p) = (1 - w)\, q^\top v_p + w \max(q^\top v_p, \max_{q' \in L_p} q^\top u_{q'})

The mean of a passage's training questions loses what tells them apart; the nearest of them does not. The equation is
that of the baseline ``question-index``, over vectors of the GNN-encoder: :math:`v_p` by
:func:`gnnretrieval.nn.label_messages.message_vectors`, :math:`u_q` by
:func:`gnnretrieval.nn.label_messages.question_vectors`. They are made when a search is opened, by the messages that
training chose for this equation or, where it chose none, by those for one vector a passage. A search compares a
question with all passages and all training questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data.runs.ranking import ties_by_id
from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.encoders.exact_search import merge_top_k
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.nn.label_messages import message_vectors, question_vectors
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.messages import require_fit
from gnnretrieval.training.gnn.model import GNNEncoderModel

_BLOCK = 64  # questions searched together


class NearestQuestions:
    """Searches the passages of an index and their training questions, exactly.

    Args:
        index: The index, for its passages and those removed from it.
        graph: The graph that its passages were embedded over.
        model: The GNN-encoder that embedded them.
        weight: Weight of the nearest question ``w``.

    Raises:
        ArtifactError: The model has graph layers, or a dual-encoder was trained with it; or the graph has other
            passages than the index.
        GnnRetrievalError: Memory does not hold the graph's vectors.
    """

    @torch.no_grad()
    def __init__(self, index: Index, graph: Graph, model: GNNEncoderModel, weight: float) -> None:
        if not model.is_linear or model.has_encoder:
            raise ArtifactError(
                f"{model.path}: only questions of layer = linear over a frozen dual-encoder are comparable with its "
                "passages. Search without --nearest-questions."
            )
        if graph.num_passages != index.meta["num_passages"] + len(index.removed):
            raise ArtifactError(
                f"{index.path}: {graph.path} has other passages than the index. Bring the embeddings and the index up "
                "to it (embed --changed, index build --changed), or search without --nearest-questions."
            )
        require_fit(graph)
        heads, messages = model.load_questions() if model.question_weight else model.load_messages()
        whole = message_graph(model.view(graph))
        labels = whole.labels.numpy()
        labels = labels[np.argsort(labels[:, 1], kind="stable")]
        asked, self._query = np.unique(labels[:, 0], return_inverse=True)
        self._asked, self._starts = np.unique(labels[:, 1], return_index=True)
        self._passages = message_vectors(whole, heads, messages).numpy()  # (m, d)
        self._questions = question_vectors(whole, heads, messages)[asked].numpy()  # (n', d)
        self._index, self._weight = index, weight

    def run(self, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
        """The run over vectors of questions ``(q, d)``, with at most ``depth`` passages each."""
        run: Run = {}
        index, passage_ids = self._index, self._index.texts.passage_ids()
        ties, most = ties_by_id(passage_ids), min(depth, index.meta["num_passages"])
        if not most:  # every passage was removed
            return {query_id: [] for query_id in query_ids}
        with progress("searching", len(query_ids), "queries") as meter:
            for part in blocks(len(query_ids), _BLOCK):
                scores = self._scores(index.similarity.prepare_array(np.asarray(queries[part], np.float32)))
                least = np.partition(scores, -most, axis=1)[:, -most]
                for query_id, of_query, limit in zip(query_ids[part], scores, least, strict=True):
                    rows = np.flatnonzero(of_query >= limit)  # the best, and those that tie with the last of them
                    found = merge_top_k(rows[None], of_query[None, rows], most, ties)
                    (run[query_id],) = rank_rows(*found[:2], passage_ids)
                meter.advance(part.stop - part.start)
        return run

    def _scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all passages ``(b, m)`` for vectors of questions ``(b, d)``; removed ones get the lowest."""
        scores: NDArray[np.float32] = queries @ self._passages.T
        if len(self._asked):
            of_queries = (queries @ self._questions.T)[:, self._query]  # (b, L)
            nearest = np.maximum.reduceat(of_queries, self._starts, axis=1)
            own = scores[:, self._asked]
            scores[:, self._asked] = (1 - self._weight) * own + self._weight * np.maximum(own, nearest)
        scores[:, self._index.removed] = np.finfo(np.float32).min
        return scores
