"""The filter gate (eq. 9, 10)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FilterGate(nn.Module):
    r"""Filter gate of `"GNN-encoder" <https://arxiv.org/abs/2204.08241>`_, eq. 9: the share of each dimension of a
    passage's context that passes.

    .. math::
        f_p = \mathrm{sigmoid}(W_{qp} [\tilde h_p \,\Vert\, h_p] + b_{qp}), \qquad
        h'_p = f_p \odot \tilde h_p + h_p

    Args:
        dimension: Width :math:`d`.
        start: Initial value of every gate, between 0 and 1.

    Shapes:
        - context, passages and output ``(T, dimension)``
    """

    def __init__(self, dimension: int, start: float = 0.1) -> None:
        super().__init__()
        self.start = start
        self.lin = nn.Linear(2 * dimension, dimension)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every gate to ``start``, for any input."""
        nn.init.zeros_(self.lin.weight)
        nn.init.constant_(self.lin.bias, math.log(self.start / (1 - self.start)))

    def forward(self, context: Tensor, passages: Tensor) -> Tensor:
        """The gated context :math:`f_p \\odot \\tilde h_p` ``(T, dimension)``."""
        return self.gate(context, passages) * context

    def gate(self, context: Tensor, passages: Tensor) -> Tensor:
        """The gate :math:`f_p` ``(T, dimension)``, between 0 and 1."""
        return torch.sigmoid(self.lin(torch.cat([context, passages], dim=-1)))
