"""Training task of RocketQAv2: a dual-encoder and a cross-encoder, trained together over each query's list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import joint_listwise_loss
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.cross_task import PairTower
from gnnretrieval.training.encoder.dual_task import PASSAGE, QUERY, BatchScorer, DualEncoderTask
from gnnretrieval.training.encoder.pair_data import draw
from gnnretrieval.training.encoder.towers import Item


class WidePairTower(PairTower):
    """A cross-encoder with rows as wide as the dual-encoder's vectors, so that one loss receives both.

    Arguments and errors as :class:`PairTower`.
    """

    def __init__(
        self, checkpoint: Checkpoint, device: torch.device, max_tokens: int, dropout: float | None, width: int
    ) -> None:
        super().__init__(checkpoint, device, max_tokens, dropout)
        self._more = width - 1

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Logits of the items, in the first column of ``(pairs, width)`` float32."""
        return F.pad(super().rows(items), (0, self._more))


class JointListwiseTask(DualEncoderTask):
    """Batches of queries, their lists of passages, and the pairs of both.

    Args:
        pair: The cross-encoder.
        given: As :class:`DualEncoderTask`.

    Raises:
        GnnRetrievalError: As there, or a query's list has its positive alone.
    """

    def __init__(self, pair: WidePairTower, *given: Any) -> None:
        super().__init__(*given)
        self.pair = pair
        self.examples = [example for example in self.examples if example.negatives]
        if not self.examples or self.settings.hard_negatives == 0:
            raise GnnRetrievalError(
                "joint training ranks a query's positive among its hard negatives: give mined examples, and at least 1 "
                "in hard_negatives."
            )
        self.steps_per_epoch = -(-len(self.examples) // self.settings.batch_size)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: rows of its queries, then of their distinct passages, then of the pairs in the lists."""
        settings, texts = self.settings, self.texts
        drawn = draw(self.examples, settings.batch_size, settings.hard_negatives, settings.seed, epoch, number)
        lists = [[one.positive.passage, *(negative.passage for negative in one.negatives)] for one in drawn]
        column = {id_: place for place, id_ in enumerate(dict.fromkeys(id_ for own in lists for id_ in own))}
        queries = self._items(QUERY, [texts.queries[one.query] for one in drawn])
        passages = self._items(PASSAGE, [texts.passages[id_] for id_ in column])
        pairs = [
            (texts.queries[one.query], texts.passages[id_])
            for one, own in zip(drawn, lists, strict=True)
            for id_ in own
        ]
        items = self.pair.items(*(list(side) for side in zip(*pairs, strict=True)))
        columns = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([column[id_] for id_ in own]) for own in lists], batch_first=True, padding_value=-1
        )  # (B, L)
        compared = self.comparison(queries, passages)
        return Batch([*queries, *passages, *items], _JointLoss(compared, len(queries) + len(passages), columns))


@dataclass(frozen=True)
class _JointLoss:
    """Loss of a batch from its rows: of queries, of passages, of pairs.

    Attributes:
        compared: Scores of queries and passages.
        texts: Number of queries and passages.
        columns: Passage of each place of each query's list ``(B, L)``; -1: empty.
    """

    compared: BatchScorer
    texts: int
    columns: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        columns = self.columns.to(rows.device)
        mask = columns >= 0
        scores = self.compared.scores(rows[: self.texts]).gather(1, columns.clamp_min(0))
        logits = torch.zeros_like(scores).masked_scatter(mask, rows[self.texts :, 0])
        return joint_listwise_loss(scores, logits, mask)
