"""Training task of late interaction: one vector per token, compared by MaxSim (ColBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnretrieval.encoders.maxsim import maxsim
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder.dev import RetrievalDev
from gnnretrieval.training.encoder.dual_task import DualEncoderTask


class MeanMaxSim(NamedTuple):
    """Scaled mean of the maxima: MaxSim divided by the number of a question's vectors, so that the scale is that of one
    cosine.

    Attributes:
        queries: Number of vectors of each question, equal for all.
        passages: Number of vectors of each passage.
        scale: Factor on the mean.
    """

    queries: Sequence[int]
    passages: Sequence[int]
    scale: float

    def scores(self, rows: Tensor) -> Tensor:
        """As :meth:`gnnretrieval.training.encoder.dual_task.Comparison.scores`, from rows ``(B l + T, d)``."""
        length, total = self.queries[0], sum(self.queries)
        queries = rows[:total].view(len(self.queries), length, -1)
        counts = torch.tensor(self.passages, device=rows.device)
        return self.scale / length * maxsim(queries, rows[total:], counts)

    def between(self, rows: Tensor, positives: Tensor) -> Tensor:
        """Passages have no MaxSim with each other: it is not symmetric.

        Raises:
            GnnRetrievalError: Always.
        """
        raise GnnRetrievalError("late interaction does not compare passages: give another loss than pair.")


class LateInteractionTask(DualEncoderTask):
    """Batches for late interaction; arguments as :class:`DualEncoderTask`.

    Raises:
        GnnRetrievalError: The settings need one vector per text.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        settings = self.settings
        if settings.loss == "pair" or settings.refresh_every is not None or settings.fixed_passages:
            raise GnnRetrievalError(
                "late interaction has several vectors per text: it does not train with loss = pair, refresh_every or "
                "fixed_passages."
            )

    def comparison(self, queries: Sequence[int], passages: Sequence[int]) -> MeanMaxSim:
        """As :meth:`DualEncoderTask.comparison`."""
        return MeanMaxSim(queries, passages, self.similarity.scale)


class LateInteractionDev(RetrievalDev):
    """Evaluation on dev with MaxSim as a passage's score."""

    block = 4  # products of 4 questions of 32 vectors with 2,000 passages of 180: 180 MiB

    def query_vectors(self) -> Tensor:
        """Vectors of the queries ``(q, l, d)``."""
        return super().query_vectors().view(len(self.queries), self.queries[0].rows, -1)

    def scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """MaxSim ``(b, passages)`` of queries ``(b, l, d)`` and rows of passages ``(rows, d)``."""
        counts = torch.tensor([item.rows for item in self.passages])
        return maxsim(queries, passages, counts)
