"""Vectors of texts by the encoder in training, without gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import ArrayWriter
from gnnretrieval.training.encoder.towers import Item, TextTower, item_batches

_WINDOW = 1024  # passages encoded at a time


def encoded(tower: TextTower, items: Sequence[Item], token_budget: int) -> Tensor:
    """Rows ``(Σ item.rows, d)`` float32 of many items, in order, without gradient."""
    counts = np.array([item.rows for item in items], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    rows = torch.empty(int(counts.sum()), tower.width)
    with torch.inference_mode():
        for chosen in item_batches(items, token_budget):
            places = np.concatenate([np.arange(starts[n], starts[n] + counts[n]) for n in chosen])
            rows[torch.from_numpy(places)] = tower.rows([items[number] for number in chosen]).cpu()
    return rows


def write_passage_vectors(dataset: Dataset, tower: TextTower, place: Path, token_budget: int, title: str) -> None:
    """Encode every passage of the corpus into ``place``, ``(m, d)`` float16.

    Args:
        dataset: The corpus.
        tower: The tower of passages.
        place: The file to write.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
        title: What the progress bar says.
    """
    tower.module.eval()
    total, texts = len(dataset.passage_ids), (passage.full_text for passage in dataset.passages())
    with ArrayWriter(place, (total, tower.width), np.float16) as writer, progress(title, total, "passages") as meter:
        while window := list(itertools.islice(texts, _WINDOW)):
            writer.write(encoded(tower, tower.items("passage", window), token_budget).numpy())
            meter.advance(len(window))
