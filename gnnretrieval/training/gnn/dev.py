"""Evaluation on dev during training: RR@10 of all context scales in one pass over the passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.ladder import harms

CUTOFF = 10


class DevSet:
    """Dev questions with their relevant passages.

    Args:
        queries: ``(q, d)`` features.
        relevant: Rows of each query's relevant passages, at least one.
        similarity: Similarity of queries and passages.
        device: Where to compute.
        parts: ``(q,)`` int, the kind of each question, if there are several kinds; None: one kind.
        clicked: How the questions count if their labels are clicks; None: all alike.
    """

    def __init__(
        self,
        queries: NDArray[np.floating],
        relevant: Sequence[Sequence[int]],
        similarity: Similarity,
        device: str | torch.device = "cpu",
        parts: NDArray[np.integer] | None = None,
        clicked: ClickedQuestions | None = None,
    ) -> None:
        self.similarity, self.relevant, self.device, self.clicked = similarity, relevant, device, clicked
        self.parts = np.zeros(len(relevant), dtype=np.int64) if parts is None else parts
        self.queries = similarity.prepare(torch.from_numpy(np.asarray(queries, dtype=np.float32))).to(device)
        self._query = torch.tensor([row for row, rows in enumerate(relevant) for _ in rows], device=device)
        self._passage = torch.tensor([passage for rows in relevant for passage in rows], device=device)
        shown = [] if clicked is None else clicked.shown
        self._whole = torch.tensor([passages is None for passages in shown], dtype=torch.bool, device=device)
        pairs = [(query, passage) for query, passages in enumerate(shown) for passage in passages or ()]
        self._shown = torch.tensor(pairs, dtype=torch.int64, device=device).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.queries)

    def with_queries(self, queries: NDArray[np.floating]) -> Self:
        """The same questions with other features ``(q, d)``."""
        return type(self)(queries, self.relevant, self.similarity, self.device, self.parts, self.clicked)

    @property
    def relevant_rows(self) -> Rows:
        """Sorted rows of all relevant passages, without duplicates."""
        rows: Rows = torch.unique(self._passage).cpu().numpy()
        return rows

    @property
    def judged_rows(self) -> Rows:
        """Sorted rows of all passages that are relevant or were shown, without duplicates."""
        rows: Rows = torch.unique(torch.cat([self._passage, self._shown[:, 1]])).cpu().numpy()
        return rows

    @torch.no_grad()
    def measure(
        self,
        model: GNNEncoder,
        store: Graph,
        scales: Sequence[float],
        visible: NDArray[np.bool_] | None = None,
        among: Rows | None = None,
    ) -> dict[float, NDArray[np.float64]]:
        """RR@10 of each query ``(q,)`` float64, by context scale ``λ``.

        The rank of a query's best relevant passage is 1 plus the number of irrelevant passages that score at least as
        high: a tie counts against the query. By clicks only passages that were shown are ranked, and each value is
        multiplied by the question's share of the weights, so that the mean is the weighted mean
        (:mod:`gnnretrieval.feedback.clicked_questions`).

        Args:
            model: The GNN-encoder.
            store: The graph.
            scales: Context scales.
            visible: ``(n,)`` bool, False for queries that are not in the graph; None: all are.
            among: Sorted rows of the passages to rank, including all of :attr:`judged_rows`; None: all passages.
        """
        device = self.queries.device
        best = self._best_relevant(model, store, scales, visible)  # (scales, q)
        best = best - 1e-6 * best.abs()  # rounding depends on the shape of a product: differences this small are ties
        above = torch.zeros_like(best, dtype=torch.int64)
        for block, passages, context in gated_contexts(model, store, device, visible, only=among):
            rows = torch.from_numpy(block).to(device)
            column = torch.searchsorted(rows, self._passage).clamp(max=len(rows) - 1)
            here = rows[column] == self._passage
            left_out = self._left_out(rows)
            for number, scale in enumerate(scales):  # one pass over the graph serves all scales
                scores = self.queries @ self.similarity.prepare(passages + scale * context).T  # (q, block)
                scores[self._query[here], column[here]] = float("-inf")
                if left_out is not None:
                    scores[left_out] = float("-inf")
                # NaN counts as above: a diverged model has 0
                above[number] += (~(scores < best[number, :, None])).sum(1)
        ranks = above + 1
        reciprocal = torch.where(ranks <= CUTOFF, 1 / ranks.double(), 0.0).cpu().numpy()
        if self.clicked is not None:
            reciprocal = reciprocal * self.clicked.shares
        return dict(zip(scales, reciprocal, strict=True))

    def _left_out(self, rows: Tensor) -> Tensor | None:
        """``(q, block)`` bool, True for passages of a block ``(block,)`` that were not shown for a question."""
        if self.clicked is None:
            return None
        left_out = (~self._whole)[:, None].repeat(1, len(rows))
        query, passage = self._shown.unbind(1)
        column = torch.searchsorted(rows, passage.contiguous()).clamp(max=len(rows) - 1)
        here = rows[column] == passage
        left_out[query[here], column[here]] = False
        return left_out

    def _best_relevant(
        self, model: GNNEncoder, store: Graph, scales: Sequence[float], visible: NDArray[np.bool_] | None
    ) -> Tensor:
        """Highest score of each query's relevant passages ``(scales, q)``."""
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
    """Moving window over the last dev measurements; a module, so that checkpoints save it.

    Args:
        epochs: Length of the window, with the current epoch.
        scales: Context scales, ascending.
        queries: Number of dev queries.
    """

    recent: Tensor

    def __init__(self, epochs: int, scales: Sequence[float], queries: int) -> None:
        super().__init__()
        self.scales = tuple(scales)
        self.register_buffer("recent", torch.full((epochs, len(self.scales), queries), np.nan, dtype=torch.float64))

    def with_this(self, measured: Mapping[float, NDArray[np.float64]]) -> dict[float, NDArray[np.float64]]:
        """Add a measurement; returns the mean RR@10 of each query ``(q,)`` over the window, by scale."""
        this = torch.from_numpy(np.stack([measured[scale] for scale in self.scales])).to(self.recent.device)
        self.recent.copy_(torch.cat([self.recent[1:], this[None]]))
        means: NDArray[np.float64] = torch.nanmean(self.recent, dim=0).cpu().numpy()
        return dict(zip(self.scales, means, strict=True))


class ScaleChoice(NamedTuple):
    """The best context scale on dev.

    Attributes:
        scale: ``λ``.
        gain: Mean gain in RR@10 over the dual-encoder.
        p: p-value of the gain by a one-sided paired t-test, or the sign test if all gains are equal; 1 without a gain.
    """

    scale: float
    gain: float
    p: float


def choose_scale(
    measured: Mapping[float, NDArray[np.float64]], base: NDArray[np.float64], parts: NDArray[np.integer] | None
) -> ScaleChoice:
    """The scale with the largest gain, the smallest of equal ones.

    If dev has several kinds of question (``parts``), a scale by which one of them loses more than a standard error is
    not chosen.

    Args:
        measured: RR@10 of each query ``(q,)`` by scale.
        base: RR@10 of each query by the dual-encoder ``(q,)``.
        parts: ``(q,)`` kind of each question; None: one kind.
    """
    # Rounded, because a mean of equal values may differ from them by 1e-19, which a t-test finds significant.
    differences = {scale: np.round(measured[scale] - base, 12) for scale in sorted(measured)}
    harmless = [scale for scale, gains in differences.items() if not harms(gains, parts)]
    scale = max(harmless or differences, key=lambda scale: float(differences[scale].mean()))
    return ScaleChoice(scale, float(differences[scale].mean()), _p_of_gain(differences[scale]) if harmless else 1.0)


def _p_of_gain(differences: NDArray[np.float64]) -> float:
    if len(differences) < 2 or np.ptp(differences) == 0:  # a t-test needs variance, so the sign test
        return float(0.5 ** len(differences)) if differences.mean() > 0 else 1.0
    from scipy import stats  # loads for a second

    return float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)
