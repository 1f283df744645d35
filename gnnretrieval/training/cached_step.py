"""Gradient of a batch: in one piece or with gradient caching, in one process or several, by the same code.

Cross-batch negatives (RocketQA §3.3) compare every query of a batch with every passage, whichever process encoded them.
Each process encodes its share of the texts, and the vectors are summed over all processes. Each then computes the loss
of the whole batch and backpropagates the gradient of its own vectors into the weights. With gradient caching (Gao et
al. 2021) the vectors are first computed without a graph, and each part is encoded again to backpropagate its gradient,
so memory is that of one part. The loss sees the same vectors on every path: temperature, masks and mean are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.training.encoder.towers import Item, Tower, item_batches
from gnnretrieval.training.ranks import ALONE, Ranks


class Batch(NamedTuple):
    """A batch of texts and its loss.

    Attributes:
        items: The texts. Their rows, in this order, are the input of the loss.
        loss: Computes the loss from the rows ``(R, d)`` float32: a mean over the whole batch.
    """

    items: Sequence[Item]
    loss: Callable[[Tensor], Tensor]


class _Part(NamedTuple):
    """Texts of one tower that are encoded together, and the positions of their rows ``(r,)``."""

    items: list[Item]
    rows: Tensor


def add_gradient(
    towers: Mapping[str, Tower],
    batch: Batch,
    *,
    cached: bool,
    token_budget: int,
    ranks: Ranks = ALONE,
    seed: Sequence[int] = (0,),
) -> float:
    """Add the gradient of a batch's loss to the parameters; with several processes, the share of this process.

    Args:
        towers: Towers by name.
        batch: The batch, the same on every process.
        cached: Encode every part twice, and keep the graph of one part in memory at a time.
        token_budget: Maximum number of tokens of a part, with padding.
        ranks: The processes. The caller must sum their gradients (:meth:`Ranks.sum_gradients`).
        seed: Seed of dropout, equal in both passes over a part.

    Returns:
        The loss.
    """
    first = next(iter(towers.values()))
    device = next(first.module.parameters()).device
    parts = _parts(batch.items, token_budget, ranks, device)
    total = sum(item.rows for item in batch.items)
    rows = torch.zeros(total, first.width, device=device)
    encoded: list[Tensor] = []
    # every process needs the vectors of the whole batch before it can compute the loss
    for number, part in enumerate(parts):
        _seed(seed, ranks.rank, number)
        with torch.set_grad_enabled(not cached):
            vectors = towers[part.items[0].tower].rows(part.items)
        rows[part.rows] = vectors.detach()
        encoded.append(vectors)
    rows = ranks.sum_(rows).requires_grad_()  # (R, d); each row is nonzero on one process only
    loss = batch.loss(rows)
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = rows.grad if rows.grad is not None else torch.zeros_like(rows)
    for number, part in enumerate(parts):
        vectors = encoded[number]
        if cached:  # the same vectors again, now with a graph
            _seed(seed, ranks.rank, number)
            vectors = towers[part.items[0].tower].rows(part.items)
        vectors.backward(gradient[part.rows])  # type: ignore[no-untyped-call]
        encoded[number] = vectors.detach()  # frees the graph of this part
    return float(loss.detach())


def _parts(items: Sequence[Item], token_budget: int, ranks: Ranks, device: torch.device) -> list[_Part]:
    """Parts of similar lengths, with the texts of this process."""
    counts = np.array([item.rows for item in items], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    parts = []
    for tower in dict.fromkeys(item.tower for item in items):
        here = np.array([number for number, item in enumerate(items) if item.tower == tower])
        lengths = np.array([len(items[number].ids) for number in here], dtype=np.int64)
        longest_first = here[np.argsort(-lengths, kind="stable")]
        own = np.sort(longest_first[ranks.rank :: ranks.count])  # similar work for every process
        for chosen in item_batches([items[number] for number in own], token_budget):
            numbers: NDArray[np.int64] = own[chosen]
            rows = np.concatenate([np.arange(starts[number], starts[number] + counts[number]) for number in numbers])
            parts.append(_Part([items[number] for number in numbers], torch.from_numpy(rows).to(device)))
    return parts


def _seed(seed: Sequence[int], rank: int, part: int) -> None:
    torch.manual_seed(int(np.random.SeedSequence([*seed, rank, part]).generate_state(1, np.uint64)[0] >> 1))
