"""Training task of late interaction: one vector per token, compared by MaxSim (ColBERT) or token by token (COIL)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gnnretrieval.encoders.late_tokens import TokenMatch
from gnnretrieval.encoders.maxsim import maxsim
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder.dev import RetrievalDev
from gnnretrieval.training.encoder.dual_task import PASSAGE, DualEncoderTask
from gnnretrieval.training.encoder.towers import Item


class ScaledMaxSim(NamedTuple):
    """Scaled MaxSim of a batch.

    Attributes:
        queries: Number of questions.
        length: Number of vectors of each.
        counts: Number of vectors of each passage ``(C,)``.
        scale: Factor on the sum of the maxima.
        same: As in :func:`gnnretrieval.encoders.maxsim.maxsim`.
    """

    queries: int
    length: int
    counts: Tensor
    scale: float
    same: Tensor | None

    def scores(self, rows: Tensor) -> Tensor:
        """As :meth:`gnnretrieval.training.encoder.dual_task.BatchScorer.scores`, from rows ``(B l + T, d)``."""
        total = self.queries * self.length
        queries = rows[:total].view(self.queries, self.length, -1)
        same = None if self.same is None else self.same.to(rows.device)
        return self.scale * maxsim(queries, rows[total:], self.counts.to(rows.device), same)

    def between(self, rows: Tensor, positives: Tensor) -> Tensor:
        """Passages have no MaxSim with each other: it is not symmetric.

        Raises:
            GnnRetrievalError: Always.
        """
        raise GnnRetrievalError("late interaction does not compare passages: give another loss than pair.")


class LateInteractionTask(DualEncoderTask):
    """Batches for late interaction; arguments as :class:`DualEncoderTask`."""

    def comparison(self, queries: Sequence[Item], passages: Sequence[Item]) -> ScaledMaxSim:
        """As :meth:`DualEncoderTask.comparison`.

        A sum of cosines is divided by their number, so that the scale is that of one cosine.
        """
        length, match = queries[0].rows, self.towers[PASSAGE].token_match
        scale = self.similarity.scale / (length if match == "all" else 1)
        counts = torch.tensor([item.rows for item in passages])
        return ScaledMaxSim(len(queries), length, counts, scale, same_tokens(queries, passages, match))


def same_tokens(queries: Sequence[Item], passages: Sequence[Item], match: TokenMatch) -> Tensor | None:
    """``(T, q l)`` bool, whether a row of a passage is of the same token as a row of a question; None: all compare."""
    if match == "all":
        return None
    of_queries, of_passages = (
        torch.tensor([item.ids[start] for item in items for start, _ in item.spans]) for items in (queries, passages)
    )
    return of_passages[:, None] == of_queries[None]


class LateInteractionDev(RetrievalDev):
    """Evaluation on dev with MaxSim as a passage's score."""

    block = 4  # products of 4 questions of 32 vectors with 2,000 passages of 180: 180 MiB

    def query_vectors(self) -> Tensor:
        """Vectors of the queries ``(q, l, d)``."""
        return super().query_vectors().view(len(self.queries), self.queries[0].rows, -1)

    def scores(self, part: slice, queries: Tensor, passages: Tensor) -> Tensor:
        """MaxSim ``(b, passages)`` of queries ``(b, l, d)`` and rows of passages ``(rows, d)``."""
        counts = torch.tensor([item.rows for item in self.passages])
        same = same_tokens(self.queries[part], self.passages, self.towers[PASSAGE].token_match)
        return maxsim(queries, passages, counts, same)
