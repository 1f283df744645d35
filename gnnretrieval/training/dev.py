"""Measuring on dev while training: RR@10 of every context scale in one pass over the passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.store import GraphStore
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.training.embedding import gated_contexts
from gnnretrieval.training.graph_tensors import GraphTensors

CUTOFF = 10


class DevSet:
    """Questions with known relevant passages, to choose by.

    Args:
        queries: ``(q, d)`` features.
        relevant: Rows of the relevant passages of each query; at least one each.
        similarity: How the two are compared.
        device: Where to compute.
    """

    def __init__(
        self,
        queries: NDArray[np.floating],
        relevant: Sequence[Sequence[int]],
        similarity: Similarity,
        device: str | torch.device = "cpu",
    ) -> None:
        self.similarity = similarity
        self.queries = similarity.prepare(torch.from_numpy(np.asarray(queries, dtype=np.float32))).to(device)
        self._query = torch.tensor([row for row, rows in enumerate(relevant) for _ in rows], device=device)
        self._passage = torch.tensor([passage for rows in relevant for passage in rows], device=device)

    def __len__(self) -> int:
        return len(self.queries)

    @torch.no_grad()
    def measure(
        self,
        model: GNNEncoder,
        store: GraphStore,
        scales: Sequence[float],
        visible: NDArray[np.bool_] | None = None,
    ) -> dict[float, float]:
        """Mean RR@10 by context scale ``λ``, over all passages of the store.

        The rank of a query's best relevant passage is 1 plus the number of other passages that score above it; an equal
        score of a passage that is not relevant counts against it, the safe side of a tie.
        """
        device = self.queries.device
        best = self._best_relevant(model, store, scales, visible)  # (scales, q)
        best = best - 1e-6 * best.abs()  # products of other shapes round otherwise: a tie within that is a tie
        above = torch.zeros_like(best, dtype=torch.int64)
        for rows, passages, context in gated_contexts(model, store, device, visible):
            first, last = int(rows[0]), int(rows[-1])  # a block of all passages is without gaps
            here = (self._passage >= first) & (self._passage <= last)
            for number, scale in enumerate(scales):
                scores = self.queries @ self.similarity.prepare(passages + scale * context).T  # (q, block)
                scores[self._query[here], self._passage[here] - first] = float("-inf")
                above[number] += (~(scores < best[number, :, None])).sum(1)  # NaN is above: a diverged model measures 0
        ranks = above + 1
        reciprocal = torch.where(ranks <= CUTOFF, 1 / ranks.double(), 0.0).mean(1)
        return dict(zip(scales, reciprocal.tolist(), strict=True))

    def _best_relevant(
        self, model: GNNEncoder, store: GraphStore, scales: Sequence[float], visible: NDArray[np.bool_] | None
    ) -> Tensor:
        """Highest score of a relevant passage ``(scales, q)``."""
        passages, position = torch.unique(self._passage, return_inverse=True)
        was_training = model.training
        model.eval()
        rows: Rows = passages.cpu().numpy()
        batch = GraphTensors(store, self.queries.device).batch(rows, visible)
        interactive = model.interactive_queries(
            batch.queries, batch.sources, batch.to_queries, batch.query_edge_features, batch.query_loop_features
        )
        context = model.gated_context(
            batch.passages,
            interactive,
            batch.to_passages,
            batch.passage_edge_features,
            batch.passage_loop_features,
        )
        model.train(was_training)
        best = torch.full((len(scales), len(self)), float("-inf"), device=self.queries.device)
        for number, scale in enumerate(scales):
            vectors = self.similarity.prepare(batch.passages + scale * context)[position]  # (relevant pairs, d)
            scores = (self.queries[self._query] * vectors).sum(1)
            best[number].scatter_reduce_(0, self._query, scores, "amax")
        return best


def choose_scale(measured: Mapping[float, float]) -> tuple[float, float]:
    """The best scale and its measure; of equal measures the smallest scale, nearest to the dual-encoder."""
    scale = max(sorted(measured), key=lambda scale: measured[scale])
    return scale, measured[scale]
