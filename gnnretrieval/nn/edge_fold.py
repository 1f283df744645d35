"""Edge features times a folded attention vector, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gnnretrieval.nn.neighbors import Neighbors
from gnnretrieval.nn.weighted_sum import chosen_dots

BLOCK = 3 * 2**19  # numbers of a block: 6 MiB of float32 stay in a cache
BAG = 256  # rows that are summed on one core, in one order


def fold_edges(edge_features: Tensor, fold: Tensor, mean: Tensor | None = None) -> Tensor:
    r"""Share of the edge features in the attention logits :math:`(h_{ij} - \mu)^\top f` ``(E, heads)``.

    Edge features are the largest thing a layer reads, and are only read: stored float16 rows are converted and centred
    a block at a time, forward and again backward, so that no float32 copy of them exists.

    Args:
        edge_features: ``(E, d_e)``, of any floating type.
        fold: ``(d_e, heads)``, float32 or float64: ``W_e^T a_e``, over the deviation of standardised features.
        mean: ``(d_e,)`` to subtract first; None: nothing.
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
            if ctx.needs_input_grad[0]:  # as large as the edge features themselves
                of_edges = (gradient @ fold.T).to(edge_features.dtype)
            if ctx.needs_input_grad[1]:
                of_fold = torch.zeros_like(fold)
                for rows, block in _blocks(edge_features, fold, mean):
                    of_fold += _transposed_times(block, gradient[rows])
        return of_edges, of_fold, None


def _blocks(edge_features: Tensor, fold: Tensor, mean: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Rows and their centred features in the precision of ``fold``; one block where nothing is gained by more."""
    edges, width = edge_features.shape
    as_they_are = edge_features.dtype == fold.dtype and mean is None
    size = max(1, edges) if as_they_are and fold.shape[1] == 1 else max(1, BLOCK // max(1, width))
    for start in range(0, edges, size):
        block = edge_features[start : start + size]
        if not as_they_are:  # float16 minus float32 is computed in float32, in one pass
            block = block.to(fold.dtype) if mean is None else torch.sub(block, mean.to(fold.dtype))
        yield slice(start, start + size), block


def _times_fold(block: Tensor, fold: Tensor) -> Tensor:
    """``block @ fold`` ``(rows, heads)``. A BLAS multiplies by so narrow a matrix on one core; this uses all."""
    if block.is_cuda:
        with torch.autocast("cuda", enabled=False):
            return block @ fold
    rows, heads = len(block), fold.shape[1]
    return chosen_dots(block, fold.T.contiguous(), Neighbors.regular(torch.arange(heads).expand(rows, heads))).view(
        rows, heads
    )


def _transposed_times(block: Tensor, gradient: Tensor) -> Tensor:
    """``block^T @ gradient`` ``(d_e, heads)``: as above, and summed in an order no number of threads changes."""
    if block.is_cuda:
        return block.T @ gradient
    index = torch.arange(len(block))
    sums = [
        F.embedding_bag(index, block, index[::BAG], mode="sum", per_sample_weights=of_head.contiguous()).sum(0)
        for of_head in gradient.T
    ]
    return torch.stack(sums, dim=1)
