r"""Ranking passages by their vectors and by their nearest training questions.

.. math:: s(q, p) = (1 - w)\, q^\top v_p + w \max(q^\top v_p, \max_{q' \in L_p} q^\top u_{q'})

The mean of a passage's training questions loses what tells them apart; the nearest of them does not. It costs a product
with all training questions per search. The equation is that of the baseline ``question-index``, over the vectors of the
GNN-encoder: :math:`v_p` by :func:`gnnretrieval.nn.label_messages.message_vectors`, :math:`u_q` by
:func:`gnnretrieval.nn.label_messages.question_vectors`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.encoders.exact_search import pair_scores
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.nn.label_messages import question_vectors
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, gather_rows
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.model import GNNEncoderModel

_BLOCK = 64  # questions searched together
_CANDIDATES = 100  # minimum number of passages from each of the two searches


class NearestQuestions:
    """Searches an index, and the training questions of its passages beside it.

    Candidates are the best passages of the index, and as many by their nearest question: 100 each, or more if more are
    wanted.

    Args:
        index: The index.
        graph: The graph that its passages were embedded over.
        model: The GNN-encoder that embedded them.
        weight: Weight of the nearest question ``w``.

    Raises:
        ArtifactError: The model has graph layers, or a dual-encoder was trained with it; or the embeddings have moved
            or changed since they were indexed.
    """

    @torch.no_grad()
    def __init__(self, index: Index, graph: Graph, model: GNNEncoderModel, weight: float) -> None:
        if not model.is_linear or model.has_encoder:
            raise ArtifactError(
                f"{model.path}: only questions of layer = linear over a frozen dual-encoder are comparable with its "
                "passages. Search without --nearest-questions."
            )
        heads, messages = model.load_messages()
        alone = message_graph(model.view(graph), queries_alone=True)
        labels = alone.labels.numpy()
        labels = labels[~np.isin(labels[:, 1], index.removed)]
        labels = labels[np.argsort(labels[:, 1], kind="stable")]
        asked, self._query = np.unique(labels[:, 0], return_inverse=True)
        self._passages, self._starts = np.unique(labels[:, 1], return_index=True)
        self._questions = question_vectors(alone, heads, messages)[asked].numpy()  # (n', d)
        self._index, self._vectors, self._weight = index, index.vectors, weight

    def run(self, query_ids: Sequence[str], queries: NDArray[np.floating], depth: int) -> Run:
        """The run over vectors of questions ``(q, d)``, with at most ``depth`` passages each."""
        run: Run = {}
        index, passage_ids = self._index, self._index.texts.passage_ids()
        most = min(max(depth, _CANDIDATES), index.meta["num_passages"])
        with progress("searching", len(query_ids), "queries") as meter:
            for part in blocks(len(query_ids), _BLOCK):
                prepared = np.ascontiguousarray(index.similarity.prepare_array(np.asarray(queries[part], np.float32)))
                found, scores = index.search(queries[part], most)
                nearest = self._nearest(prepared)  # (b, p)
                for row, query_id in enumerate(query_ids[part]):
                    rows, joined = self._joined(prepared[row], found[row], scores[row], nearest[row], most)
                    (ranking,) = rank_rows(rows[None], joined[None], passage_ids)
                    run[query_id] = ranking[:depth]
                meter.advance(part.stop - part.start)
        return run

    def _nearest(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score of the nearest question of each passage with questions ``(b, p)``."""
        if not len(self._passages):
            return np.empty((len(queries), 0), dtype=np.float32)
        scores = queries @ self._questions.T  # (b, n')
        nearest: NDArray[np.float32] = np.maximum.reduceat(scores[:, self._query], self._starts, axis=1)
        return nearest

    def _joined(
        self,
        query: NDArray[np.float32],
        found: NDArray[np.int64],
        scores: NDArray[np.float32],
        nearest: NDArray[np.float32],
        most: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores of one question's candidates: the passages found, and the best by their nearest question."""
        live = found >= 0
        found, scores = found[live], scores[live]
        best = np.argpartition(-nearest, most - 1)[:most] if len(nearest) > most else np.arange(len(nearest))
        others = np.setdiff1d(self._passages[best], found)
        vectors = gather_rows(self._vectors, others)
        of_others = pair_scores(query[None], vectors, self._index.similarity)
        rows, plain = np.concatenate([found, others]), np.concatenate([scores, of_others]).astype(np.float32)
        places = np.searchsorted(self._passages, rows)
        known = places < len(self._passages)
        known[known] = self._passages[places[known]] == rows[known]
        of_questions = plain.copy()
        of_questions[known] = np.maximum(plain[known], nearest[places[known]])
        return rows, (1 - self._weight) * plain + self._weight * of_questions
