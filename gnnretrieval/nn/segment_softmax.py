"""Attention logits of edges, and the softmax over each target's edges and self-loop (eq. 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnretrieval.nn.neighbors import Neighbors


def at_least_float32(values: Tensor) -> Tensor:
    """``values`` in the type that sums are computed in: float64 unchanged, every other type as float32."""
    return values if values.dtype == torch.float64 else values.float()


def edge_scores(source_scores: Tensor, target_scores: Tensor, neighbors: Neighbors) -> Tensor:
    """Source's score plus target's score of each edge ``(E, heads)``.

    Args:
        source_scores: ``(S, heads)``.
        target_scores: ``(targets, heads)``.
        neighbors: The edges.
    """
    scores: Tensor = _EdgeScores.apply(source_scores, target_scores, neighbors)  # type: ignore[no-untyped-call]
    return scores


def segment_softmax(logits: Tensor, loop_logits: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Softmax over each target's edges and its self-loop (eq. 4), in float32 (float64 for float64 input).

    Args:
        logits: ``(E, heads)``, the edges' logits.
        loop_logits: ``(targets, heads)``, the self-loops' logits.
        neighbors: The edges.

    Returns:
        Attention of the edges ``(E, heads)`` and of the self-loops ``(targets, heads)``.
    """
    logits, loop_logits = at_least_float32(logits), at_least_float32(loop_logits)
    attention: tuple[Tensor, Tensor] = _SegmentSoftmax.apply(logits, loop_logits, neighbors)  # type: ignore[no-untyped-call]
    return attention


class _EdgeScores(torch.autograd.Function):
    """Gathered sum of both ends' scores. Gradients are sums by source and by target, in a fixed order."""

    @staticmethod
    def forward(ctx: Any, source_scores: Tensor, target_scores: Tensor, neighbors: Neighbors) -> Tensor:
        ctx.neighbors, ctx.num_sources = neighbors, len(source_scores)
        return source_scores.index_select(0, neighbors.sources).add_(neighbors.spread(target_scores))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        of_sources = of_targets = None
        if ctx.needs_input_grad[0]:
            by_source, order = ctx.neighbors.reversed(ctx.num_sources)
            of_sources = by_source.total(gradient.index_select(0, order))
        if ctx.needs_input_grad[1]:
            of_targets = ctx.neighbors.total(gradient)
        return of_sources, of_targets, None


class _SegmentSoftmax(torch.autograd.Function):
    """Softmax with the gradient ``α_j (g_j - Σ_i α_i g_i)``, ``i`` over a target's edges and its self-loop."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loop_logits: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
        highest = torch.maximum(neighbors.highest(logits), loop_logits)  # (targets, heads), against overflow
        weights = (logits - neighbors.spread(highest)).exp_()
        loop_weights = (loop_logits - highest).exp_()
        total = neighbors.total(weights) + loop_weights
        weights, loop_weights = weights.div_(neighbors.spread(total)), loop_weights.div_(total)
        ctx.save_for_backward(weights, loop_weights)
        ctx.neighbors = neighbors
        return weights, loop_weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, loop_gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, loop_weights = ctx.saved_tensors
        mean = ctx.neighbors.total(weights * gradient) + loop_weights * loop_gradient
        return weights * (gradient - ctx.neighbors.spread(mean)), loop_weights * (loop_gradient - mean), None
