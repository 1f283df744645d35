"""Training task of a cross-encoder: a head with one logit on any encoder checkpoint (RocketQA, step 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.loading import load_classifier
from gnnretrieval.encoders.pair_tokens import PairTokenizer
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Example
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.dev import measures_of
from gnnretrieval.training.encoder.head_tower import HeadTower
from gnnretrieval.training.encoder.pair_data import Texts, draw
from gnnretrieval.training.encoder.settings import CrossEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, Tower, item_batches
from gnnretrieval.training.ranks import Ranks

PAIR = "pair"


class PairTower(HeadTower):
    """A sequence classifier with one label: the logit that a passage is relevant to a query.

    Arguments and errors as :class:`HeadTower`; of a pair that is longer than ``max_tokens``, the longer text is cut.
    """

    width = 1

    def __init__(self, checkpoint: Checkpoint, device: torch.device, max_tokens: int, dropout: float | None) -> None:
        load = partial(load_classifier, num_labels=1, ignore_mismatched_sizes=True)
        super().__init__(load, checkpoint, device, max_tokens, dropout)
        self.pairs = PairTokenizer(self.tokenizer, max_tokens, checkpoint.directory)

    def items(self, queries: Sequence[str], passages: Sequence[str]) -> list[Item]:
        """Items of pairs of texts: query ``i`` with passage ``i``."""
        texts = self.pairs.split(queries, passages)
        joined = [texts.join(number, number) for number in range(len(queries))]
        return [Item(PAIR, tuple(pair.ids.tolist()), tuple(pair.types.tolist())) for pair in joined]

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Logits of the items ``(pairs, 1)`` float32."""
        tokens = {"input_ids": [list(item.ids) for item in items]}
        if "token_type_ids" in self.tokenizer.model_input_names:
            tokens["token_type_ids"] = [list(item.types) for item in items]
        logits: Tensor = self.module(**self.tokenizer.pad(tokens, return_tensors="pt").to(self.device)).logits
        return logits.float()


class CrossEncoderTask:
    """Batches of pairs: each query with one positive and some negatives.

    Args:
        examples: Training examples: positives, and negatives from the retriever's top-k.
        dev: The same for dev queries, to choose the epoch and to calibrate.
        texts: Texts of both.
        tower: The model to train.
        settings: Loss, batch size and negatives.

    Raises:
        GnnRetrievalError: No training example, or no dev example, has a negative.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        dev: Sequence[Example],
        texts: Texts,
        tower: PairTower,
        settings: CrossEncoderTrainSettings,
    ) -> None:
        self.examples, dev = ([example for example in part if example.negatives] for part in (examples, dev))
        if not self.examples or not dev:
            what = "training" if not self.examples else "dev"
            raise GnnRetrievalError(f"no {what} query has both a positive and a negative passage.")
        rng = np.random.default_rng([settings.seed, 0, 2])
        self.dev = [dev[row] for row in sorted(rng.permutation(len(dev))[: settings.dev_queries].tolist())]
        self.texts, self.tower, self.settings = texts, tower, settings
        self.steps_per_epoch = -(-len(self.examples) // settings.batch_size)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: the pairs of its queries, each query's positive first."""
        settings = self.settings
        drawn = draw(self.examples, settings.batch_size, settings.negatives, settings.seed, epoch, number)
        pairs = [
            (one.query, candidate.passage, float(candidate is one.positive))
            for one in drawn
            for candidate in (one.positive, *one.negatives)
        ]
        labels = torch.tensor([label for _, _, label in pairs])
        items = self._items([pair[:2] for pair in pairs])
        if settings.loss == "binary":
            return Batch(items, _BinaryLoss(labels))
        return Batch(items, _ListwiseLoss([1 + len(one.negatives) for one in drawn]))

    def _items(self, pairs: Sequence[tuple[str, str]]) -> list[Item]:
        texts = self.texts
        return self.tower.items([texts.queries[q] for q, _ in pairs], [texts.passages[p] for _, p in pairs])

    def before_step(self, step: int, towers: Mapping[str, Tower], directory: Path, ranks: Ranks) -> None:
        """Do nothing: the examples do not change."""

    def measure(self, towers: Mapping[str, Tower]) -> dict[str, float]:
        """RR@10 and success rates of ranking each dev query's candidates."""
        ranks, (logits, labels) = [], self.dev_logits()
        start = 0
        for example in self.dev:
            stop = start + len(example.positives) + len(example.negatives)
            own, right = logits[start:stop], labels[start:stop]
            ranks.append(1 + int((~(own[~right] < own[right].max())).sum()))
            start = stop
        return measures_of(np.array(ranks))

    def dev_logits(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Logits and labels ``(pairs,)`` of the dev queries' pairs, by query, positives first."""
        pairs = [(example.query, c.passage) for example in self.dev for c in (*example.positives, *example.negatives)]
        labels = np.concatenate(
            [[True] * len(example.positives) + [False] * len(example.negatives) for example in self.dev]
        )
        items = self._items(pairs)
        logits = np.empty(len(items))
        with torch.inference_mode():
            for chosen in item_batches(items, self.settings.token_budget):
                logits[chosen] = self.tower.rows([items[number] for number in chosen])[:, 0].double().cpu().numpy()
        return logits, labels.astype(np.bool_)


class _BinaryLoss:
    """Binary cross-entropy of logits ``(pairs, 1)``, mean over pairs."""

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels

    def __call__(self, rows: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(rows[:, 0], self.labels.to(rows.device))


class _ListwiseLoss:
    """Negative log-likelihood of each query's positive among its own candidates, mean over queries.

    Logits ``(pairs, 1)`` are sorted by query, each query's positive first.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __call__(self, rows: Tensor) -> Tensor:
        lists = nn.utils.rnn.pad_sequence(
            list(torch.split(rows[:, 0], self.lengths)), batch_first=True, padding_value=float("-inf")
        )  # (B, L)
        return F.cross_entropy(lists, torch.zeros(len(lists), dtype=torch.long, device=rows.device))
