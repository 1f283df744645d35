"""Product of edge features and a folded attention vector, computed block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.weighted_sum import chosen_dots

BLOCK = 3 * 2**19  # values per block: 6 MiB of float32 fit the processor's cache
BAG = 256  # rows that one core sums, in a fixed order


def fold_edges(edge_features: Tensor, fold: Tensor, mean: Tensor | None = None) -> Tensor:
    r"""Part of the attention logits that comes from the edge features, :math:`(h_{ij} - \mu)^\top f`.

    Edge features are the largest input of a layer. The stored float16 rows are converted and centred one block at a
    time, in the forward and again in the backward pass, so there is never a float32 copy of all of them.

    Args:
        edge_features: ``(E, d_e)``, any floating type.
        fold: ``(d_e, heads)``, float32 or float64: ``W_e^T a_e``, divided by the features' standard deviation where
            they are standardised.
        mean: ``(d_e,)``, subtracted from the features first; None: 0.

    Returns:
        ``(E, heads)``, of the type of ``fold``.
    """
    logits: Tensor = _EdgeFold.apply(edge_features, fold, mean)  # type: ignore[no-untyped-call]
    return logits


class _EdgeFold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edge_features: Tensor, fold: Tensor, mean: Tensor | None) -> Tensor:
        ctx.save_for_backward(edge_features, fold, mean)
        logits = fold.new_empty(len(edge_features), fold.shape[1])
        for rows, block in _blocks(edge_features, fold, mean):
            logits[rows] = _times_fold(block, fold)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        edge_features, fold, mean = ctx.saved_tensors
        of_edges = of_fold = None
        with torch.autocast(gradient.device.type, enabled=False):
            if ctx.needs_input_grad[0]:  # (E, d_e), as large as the edge features; stored features need no gradient
                of_edges = (gradient @ fold.T).to(edge_features.dtype)
            if ctx.needs_input_grad[1]:
                of_fold = torch.zeros_like(fold)
                for rows, block in _blocks(edge_features, fold, mean):
                    of_fold += _transposed_times(block, gradient[rows])
        return of_edges, of_fold, None


def _blocks(edge_features: Tensor, fold: Tensor, mean: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Slices of rows with their centred features, of ``fold``'s type; one block if neither type nor mean changes."""
    edges, width = edge_features.shape
    as_they_are = edge_features.dtype == fold.dtype and mean is None
    size = max(1, edges) if as_they_are and fold.shape[1] == 1 else max(1, BLOCK // max(1, width))
    for start in range(0, edges, size):
        block = edge_features[start : start + size]
        if not as_they_are:  # torch.sub of float16 and float32 computes in float32, in one pass
            block = block.to(fold.dtype) if mean is None else torch.sub(block, mean.to(fold.dtype))
        yield slice(start, start + size), block


def _times_fold(block: Tensor, fold: Tensor) -> Tensor:
    """``block @ fold`` ``(rows, heads)``, on all cores: BLAS uses one core for a matrix this narrow."""
    if block.is_cuda:
        with torch.autocast("cuda", enabled=False):
            return block @ fold
    rows, heads = len(block), fold.shape[1]
    return chosen_dots(block, fold.T.contiguous(), Neighbors.regular(torch.arange(heads).expand(rows, heads))).view(
        rows, heads
    )


def _transposed_times(block: Tensor, gradient: Tensor) -> Tensor:
    """``block^T @ gradient`` ``(d_e, heads)``, on all cores; the order of the sum does not depend on their number."""
    if block.is_cuda:
        return block.T @ gradient
    index = torch.arange(len(block))
    sums = [
        F.embedding_bag(index, block, index[::BAG], mode="sum", per_sample_weights=of_head.contiguous()).sum(0)
        for of_head in gradient.T
    ]
    return torch.stack(sums, dim=1)
