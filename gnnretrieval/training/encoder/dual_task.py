"""Training task of a dual-encoder: one vector per text, in-batch and hard negatives (DPR, RocketQA, PAIR, ANCE)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses.dual_encoder_loss import LossBatch, dual_encoder_losses
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.pair_data import Drawn, Relevance, Texts, draw
from gnnretrieval.training.encoder.refresh import Refresher
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower, Tower
from gnnretrieval.training.ranks import Ranks

QUERY, PASSAGE = "query", "passage"


class Dev(Protocol):
    """Evaluation on dev."""

    def measure(self) -> dict[str, float]:
        """Measures; the first one chooses the epoch."""


class DualEncoderTask:
    """Batches of queries with their positives and hard negatives.

    Args:
        examples: Training examples.
        texts: Their texts.
        towers: The towers ``query`` and ``passage``; the same one if they share weights.
        similarity: Similarity of their vectors.
        settings: Loss, batch size and negatives.
        dev: Evaluation on dev.
        refresher: Mines hard negatives again during training (ANCE); None: the negatives do not change.

    Raises:
        GnnRetrievalError: There are no examples, or a distillation loss misses a probability.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        texts: Texts,
        towers: Mapping[str, TextTower],
        similarity: Similarity,
        settings: DualEncoderTrainSettings,
        dev: Dev,
        refresher: Refresher | None = None,
    ) -> None:
        if not examples:
            raise GnnRetrievalError("there is nothing to train on: no query has a positive passage.")
        self.examples, self.texts, self.towers = list(examples), texts, towers
        self.similarity, self.settings, self.dev, self.refresher = similarity, settings, dev, refresher
        self.relevance = Relevance(self.examples, texts)
        self.steps_per_epoch = -(-len(self.examples) // settings.batch_size)
        if dual_encoder_losses()[settings.loss].is_distilled:
            _require_probabilities(self.examples, settings.loss)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: rows of its queries, then rows of its distinct passages."""
        settings = self.settings
        drawn = draw(self.examples, settings.batch_size, settings.hard_negatives, settings.seed, epoch, number)
        passages = list(dict.fromkeys(c.passage for one in drawn for c in (one.positive, *one.negatives)))
        queries = self._items(QUERY, [self.texts.queries[one.query] for one in drawn])
        items = queries + self._items(PASSAGE, [self.texts.passages[id_] for id_ in passages])
        compared = self.comparison(queries, items[len(queries) :])
        return Batch(items, _Loss(self, drawn, passages, compared))

    def _items(self, tower: str, texts: list[str]) -> list[Item]:
        return self.towers[tower].items(tower, texts)

    def comparison(self, queries: Sequence[Item], passages: Sequence[Item]) -> BatchScorer:
        """How the rows of a batch's items become scores."""
        return OneVectorEach(len(queries), self.similarity.scale)

    def before_step(self, step: int, towers: Mapping[str, Tower], directory: Path, ranks: Ranks) -> None:
        """Mine hard negatives with the current encoder if a search is due (ANCE)."""
        if self.refresher is not None:
            self.examples = self.refresher.refreshed(self.examples, self.relevance, step, directory, ranks)

    def measure(self, towers: Mapping[str, Tower]) -> dict[str, float]:
        """RR@10 and success rates on dev."""
        return self.dev.measure()


class BatchScorer(Protocol):
    """Scores of a batch's queries and passages, scaled, from its rows: those of queries, then those of passages."""

    def scores(self, rows: Tensor) -> Tensor:
        """Scores of each query and passage ``(B, C)``."""

    def between(self, rows: Tensor, positives: Tensor) -> Tensor:
        """Scores of each query's positive and each passage ``(B, C)``."""


class OneVectorEach(NamedTuple):
    """Scaled products of rows ``(B + C, d)``."""

    queries: int
    scale: float

    def scores(self, rows: Tensor) -> Tensor:
        """As :meth:`BatchScorer.scores`."""
        return self.scale * rows[: self.queries] @ rows[self.queries :].T

    def between(self, rows: Tensor, positives: Tensor) -> Tensor:
        """As :meth:`BatchScorer.between`."""
        passages = rows[self.queries :]
        return self.scale * passages[positives] @ passages.T


class _Loss:
    """Loss of a batch from its rows: of queries, then of passages."""

    def __init__(self, task: DualEncoderTask, drawn: list[Drawn], passages: list[str], compared: BatchScorer) -> None:
        self.loss, self.alpha = dual_encoder_losses()[task.settings.loss], task.settings.alpha
        self.compared = compared
        self.drawn, self.passages = drawn, passages
        self.column = {id_: column for column, id_ in enumerate(passages)}
        self.relevant = torch.from_numpy(task.relevance.mask([one.query for one in drawn], passages))

    def __call__(self, rows: Tensor) -> Tensor:
        scores = self.compared.scores(rows)  # (B, C)
        positives = torch.tensor([self.column[one.positive.passage] for one in self.drawn], device=rows.device)
        return self.loss.of(
            LossBatch(
                scores,
                positives,
                self.relevant.to(rows.device),
                lambda: self.compared.between(rows, positives),
                lambda: self._lists(scores),
                self.alpha,
            )
        )

    def _lists(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, logits and mask as in :attr:`LossBatch.lists`, ``(B, L)`` each."""
        lists = [[one.positive, *one.negatives] for one in self.drawn]
        longest = max(map(len, lists))
        columns = torch.zeros(len(lists), longest, dtype=torch.long, device=scores.device)
        teacher = torch.zeros(len(lists), longest, device=scores.device)
        mask = torch.zeros(len(lists), longest, dtype=torch.bool, device=scores.device)
        for row, candidates in enumerate(lists):
            for place, candidate in enumerate(candidates):
                columns[row, place] = self.column[candidate.passage]
                teacher[row, place] = logit(candidate)
                mask[row, place] = True
        return scores.gather(1, columns), teacher, mask


def logit(candidate: Candidate) -> float:
    """The cross-encoder's logit of a candidate, from its probability."""
    assert candidate.probability is not None
    probability = min(max(candidate.probability, 1e-7), 1 - 1e-7)
    return math.log(probability / (1 - probability))


def _require_probabilities(examples: Sequence[Example], loss: str) -> None:
    for example in examples:
        for candidate in (*example.positives, *example.negatives):
            if candidate.probability is None:
                raise GnnRetrievalError(
                    f"loss = {loss} needs the cross-encoder's probabilities, but query {example.query!r} has none for "
                    f"passage {candidate.passage!r}: give examples made by mine denoise."
                )
