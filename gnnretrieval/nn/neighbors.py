"""Who each target node hears, in compressed sparse rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Neighbors(NamedTuple):
    """Edges sorted by target.

    Attributes:
        sources: ``(E,)`` int64, source row of each edge.
        offsets: ``(targets + 1,)`` int64; the edges of target ``i`` are ``offsets[i]:offsets[i + 1]``.
    """

    sources: Tensor
    offsets: Tensor

    @property
    def num_targets(self) -> int:
        """Number of target nodes."""
        return self.offsets.numel() - 1

    def targets(self) -> Tensor:
        """Target row of each edge ``(E,)``."""
        counts = self.offsets.diff()
        return torch.repeat_interleave(torch.arange(self.num_targets, device=counts.device), counts)


def segment_softmax(logits: Tensor, loop_logits: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Softmax over each target's edges and its self-loop (eq. 4), in float32.

    Args:
        logits: ``(E, heads)`` of the edges.
        loop_logits: ``(targets, heads)`` of the self-loops.
        neighbors: The edges, sorted by target: segments are reduced in order, so that the sum is repeatable.

    Returns:
        Attention of the edges ``(E, heads)`` and of the self-loops ``(targets, heads)``.
    """
    logits, loop_logits = logits.float(), loop_logits.float()
    targets = neighbors.targets()
    with torch.no_grad():
        highest = torch.segment_reduce(logits, "max", offsets=neighbors.offsets, axis=0, unsafe=True)
        highest = torch.maximum(highest, loop_logits)
    weights = (logits - highest.index_select(0, targets)).exp()
    loop_weights = (loop_logits - highest).exp()
    total = torch.segment_reduce(weights, "sum", offsets=neighbors.offsets, axis=0, unsafe=True) + loop_weights
    return weights / total.index_select(0, targets), loop_weights / total
