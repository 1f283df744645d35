"""Attention-weighted sum of neighbours (eq. 5), fused in both passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gnnretrieval.nn.neighbors import Neighbors


def weighted_sum(source: Tensor, target: Tensor, weights: Tensor, loop_weights: Tensor, neighbors: Neighbors) -> Tensor:
    r"""Weighted sum of each target's neighbours and of the target itself.

    .. math::
        c_i = \sum_{j \in \mathcal{N}_i} \alpha_{ij} h_j + \alpha_{ii} h_i

    Neither pass makes an ``(E, d)`` tensor. The sum is one ``embedding_bag`` over the edges sorted by target. The
    gradient of the sources is one over the same edges sorted by source. The gradient of a weight is the dot product of
    its source and its target's gradient.

    Args:
        source: ``(S, d)``; all tensors are float32, or all float64.
        target: ``(targets, d)``.
        weights: ``(E,)``, the edges' weights.
        loop_weights: ``(targets,)``, the self-loops' weights.
        neighbors: The edges.

    Returns:
        ``(targets, d)``.
    """
    context: Tensor = _WeightedSum.apply(source, target, weights, loop_weights, neighbors)  # type: ignore[no-untyped-call]
    return context


def chosen_dots(rows: Tensor, others: Tensor, pairs: Neighbors) -> Tensor:
    """Dot product of target row and source row for each edge of ``pairs`` ``(E,)``, without gathering either side.

    It calls the kernel for the gradient of ``embedding_bag`` with respect to its weights: autograd would compute the
    sum or the other gradients too. (``torch.sparse.sampled_addmm`` does not allow a pair to occur twice.)

    Args:
        rows: ``(targets, d)``, float32 or float64.
        others: ``(S, d)``, of the same type.
        pairs: The edges.
    """
    dots: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        rows, others, pairs.sources, pairs.offsets, pairs.targets(), mode=0
    )
    return dots


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, weights: Tensor, loop_weights: Tensor, neighbors: Neighbors
    ) -> Tensor:
        ctx.save_for_backward(source, target, weights, loop_weights)
        ctx.neighbors = neighbors
        return _bag(source, weights, neighbors).addcmul_(target, loop_weights[:, None])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        source, target, weights, loop_weights = ctx.saved_tensors
        of_source = of_target = of_weights = of_loops = None
        by_source, order = ctx.neighbors.reversed(len(source))
        if ctx.needs_input_grad[0]:
            of_source = _bag(gradient, weights.index_select(0, order), by_source)
        if ctx.needs_input_grad[1]:
            of_target = gradient * loop_weights[:, None]
        if ctx.needs_input_grad[2]:  # by source: each source row is read once; random access is to the smaller table
            of_weights = torch.empty_like(weights).index_copy_(0, order, chosen_dots(source, gradient, by_source))
        if ctx.needs_input_grad[3]:
            of_loops = (gradient * target).sum(1)
        return of_source, of_target, of_weights, of_loops, None


def _bag(table: Tensor, weights: Tensor, neighbors: Neighbors) -> Tensor:
    return F.embedding_bag(
        neighbors.sources,
        table,
        neighbors.offsets,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )
