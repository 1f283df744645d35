"""Measuring on dev while training: RR@10 of every context scale in one pass over the passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.graph_tensors import GraphTensors

CUTOFF = 10


class DevSet:
    """Questions with known relevant passages, to choose by.

    Args:
        queries: ``(q, d)`` features.
        relevant: Rows of the relevant passages of each query; at least one each.
        similarity: How the two are compared.
        device: Where to compute.
        parts: ``(q,)`` which part each query is of, where they stand for several kinds of question; None: one kind.
    """

    def __init__(
        self,
        queries: NDArray[np.floating],
        relevant: Sequence[Sequence[int]],
        similarity: Similarity,
        device: str | torch.device = "cpu",
        parts: NDArray[np.integer] | None = None,
    ) -> None:
        self.similarity, self.relevant, self.device = similarity, relevant, device
        self.parts = np.zeros(len(relevant), dtype=np.int64) if parts is None else parts
        self.queries = similarity.prepare(torch.from_numpy(np.asarray(queries, dtype=np.float32))).to(device)
        self._query = torch.tensor([row for row, rows in enumerate(relevant) for _ in rows], device=device)
        self._passage = torch.tensor([passage for rows in relevant for passage in rows], device=device)

    def __len__(self) -> int:
        return len(self.queries)

    def with_queries(self, queries: NDArray[np.floating]) -> Self:
        """The same questions with other features ``(q, d)``."""
        return type(self)(queries, self.relevant, self.similarity, self.device, self.parts)

    @property
    def relevant_rows(self) -> Rows:
        """Rows of all relevant passages, sorted, each once."""
        rows: Rows = torch.unique(self._passage).cpu().numpy()
        return rows

    def measure(
        self,
        model: GNNEncoder,
        store: Graph,
        scales: Sequence[float],
        visible: NDArray[np.bool_] | None = None,
        among: Rows | None = None,
    ) -> dict[float, NDArray[np.float64]]:
        """RR@10 of each query ``(q,)`` by context scale ``λ``.

        The rank of a query's best relevant passage is 1 plus the number of other passages that score above it; an equal
        score of a passage that is not relevant counts against it, the safe side of a tie.

        Args:
            model: The GNN-encoder.
            store: The graph.
            scales: Context scales.
            visible: ``(n,)`` False for queries that are not in the graph; None: all are.
            among: Sorted rows of the passages to rank, the relevant ones among them; None: all of the store.
        """
        with torch.no_grad():
            return self._measure(model, store, scales, visible, among)

    def _measure(
        self,
        model: GNNEncoder,
        store: Graph,
        scales: Sequence[float],
        visible: NDArray[np.bool_] | None,
        among: Rows | None,
    ) -> dict[float, NDArray[np.float64]]:
        device = self.queries.device
        best = self._best_relevant(model, store, scales, visible)  # (scales, q)
        best = best - 1e-6 * best.abs()  # products of other shapes round otherwise: a tie within that is a tie
        above = torch.zeros_like(best, dtype=torch.int64)
        for block, passages, context in gated_contexts(model, store, device, visible, only=among):
            rows = torch.from_numpy(block).to(device)
            column = torch.searchsorted(rows, self._passage).clamp(max=len(rows) - 1)
            here = rows[column] == self._passage
            for number, scale in enumerate(scales):
                scores = self.queries @ self.similarity.prepare(passages + scale * context).T  # (q, block)
                scores[self._query[here], column[here]] = float("-inf")
                above[number] += (~(scores < best[number, :, None])).sum(1)  # NaN is above: a diverged model measures 0
        ranks = above + 1
        reciprocal = torch.where(ranks <= CUTOFF, 1 / ranks.double(), 0.0).cpu().numpy()
        return dict(zip(scales, reciprocal, strict=True))

    def _best_relevant(
        self, model: GNNEncoder, store: Graph, scales: Sequence[float], visible: NDArray[np.bool_] | None
    ) -> Tensor:
        """Highest score of a relevant passage ``(scales, q)``."""
        _, position = torch.unique(self._passage, return_inverse=True)
        was_training = model.training
        model.eval()
        batch = GraphTensors(store, self.queries.device).batch(self.relevant_rows, visible)
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


class DevWindow(nn.Module):
    """The last measurements on dev, by which an epoch is chosen together with its own; a checkpoint keeps them.

    Args:
        epochs: How many, this one's among them.
        scales: Context scales, ascending.
        queries: Dev queries.
    """

    recent: Tensor

    def __init__(self, epochs: int, scales: Sequence[float], queries: int) -> None:
        super().__init__()
        self.scales = tuple(scales)
        self.register_buffer("recent", torch.full((epochs, len(self.scales), queries), np.nan, dtype=torch.float64))

    def with_this(self, measured: Mapping[float, NDArray[np.float64]]) -> dict[float, NDArray[np.float64]]:
        """RR@10 of each query ``(q,)`` by scale, mean of this measurement and those before it in the window."""
        this = torch.from_numpy(np.stack([measured[scale] for scale in self.scales])).to(self.recent.device)
        self.recent.copy_(torch.cat([self.recent[1:], this[None]]))
        means: NDArray[np.float64] = torch.nanmean(self.recent, dim=0).cpu().numpy()
        return dict(zip(self.scales, means, strict=True))


class ScaleChoice(NamedTuple):
    """The context scale that does best on dev.

    Attributes:
        scale: ``λ``.
        gain: Mean gain in RR@10 over the dual-encoder, in the part of dev that gains least.
        p: p-value of that gain: a paired t-test, one-sided; 1 where there is none.
    """

    scale: float
    gain: float
    p: float


def choose_scale(
    measured: Mapping[float, NDArray[np.float64]], base: NDArray[np.float64], parts: NDArray[np.integer]
) -> ScaleChoice:
    """The scale of most gain; of equal ones the smallest, nearest to the dual-encoder.

    Where dev stands for several kinds of question (``parts``), a scale is worth what it gains on the worst of them.

    Args:
        measured: RR@10 of each query ``(q,)`` by scale.
        base: The dual-encoder's ``(q,)``.
        parts: ``(q,)``.
    """
    kinds = [parts == part for part in np.unique(parts)]
    # A mean of equal measurements is not always that measurement: rounded, or λ = 0 would gain 1e-19, significantly.
    differences = {scale: np.round(measured[scale] - base, 12) for scale in sorted(measured)}

    def gain(scale: float) -> float:
        return min(float(differences[scale][kind].mean()) for kind in kinds)

    scale = max(differences, key=gain)
    p = max(_p_of_gain(differences[scale][kind]) for kind in kinds)
    return ScaleChoice(scale, gain(scale), p)


def _p_of_gain(differences: NDArray[np.float64]) -> float:
    if len(differences) < 2 or np.ptp(differences) == 0:  # there is no spread to test against
        return 0.0 if differences.mean() > 0 else 1.0
    return float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)
