"""A linear layer with its weight in the layout of oneDNN's kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_ROWS = 512  # number of rows that the weight's layout is chosen for; any other works too
ROW_MULTIPLE = 16  # with fewer rows another kernel may run, which sums in another order
BLOCK_ROWS = 32


class PackedLinear:
    r""":math:`y = x W^\top + b` on the CPU, for inference.

    ``F.linear`` converts the weight's layout in every call, and writes the bias before it adds the product; this does
    neither. It is the operator that ``torch.compile`` makes of frozen linear layers. A row of ``y`` has the same bytes
    whatever the other rows are, if there are at least ``ROW_MULTIPLE`` rows.

    Args:
        weight: ``(out, in)``.
        bias: ``(out,)``, added in float32 if oneDNN is available.
        dtype: Type of the weight, of ``x`` and of ``y``.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        weight = weight.detach().to(dtype).contiguous()
        self.bias = bias.detach().float().clone()
        self.packed = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        self.dtype = dtype
        if self.packed:
            if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
                weight = weight.float()  # oneDNN refuses bfloat16 here: rounded weights, products and sums in float32
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, CHUNK_ROWS)
        else:
            self.weight, self.bias = weight.clone(), self.bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """``(rows, in)`` to ``(rows, out)``, both contiguous."""
        if not self.packed:
            return F.linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.weight.dtype), self.weight, self.bias, "none", [], "")
        return y.to(self.dtype)


def by_equal_blocks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """``function`` of rows ``(n, d)``, applied to blocks of ``BLOCK_ROWS`` rows, the last one padded with zeros.

    Every call has the same shape, so that a row's result does not depend on the number of rows.
    """
    blocks = F.pad(rows, (0, 0, 0, -len(rows) % BLOCK_ROWS)).split(BLOCK_ROWS)  # type: ignore[no-untyped-call]
    return torch.cat([function(block) for block in blocks])[: len(rows)]
