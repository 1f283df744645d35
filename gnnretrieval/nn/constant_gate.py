"""A constant gate in place of the filter gate (the ablation of table 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConstantGate(nn.Module):
    r"""Constant gate of `"GNN-encoder" <https://arxiv.org/abs/2204.08241>`_, §4.5: every passage receives the same
    share :math:`\alpha` of its context, :math:`h'_p = \alpha \tilde h_p + h_p`.

    Nothing is learned. The context scale, chosen on dev, multiplies ``value``.

    Args:
        value: :math:`\alpha`.

    Shapes:
        - context, passages and output ``(T, dimension)``
    """

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, context: Tensor, passages: Tensor) -> Tensor:
        """The gated context :math:`\\alpha \\tilde h_p` ``(T, dimension)``."""
        return self.value * context

    def gate(self, context: Tensor, passages: Tensor) -> Tensor:
        """The gate: :math:`\\alpha` everywhere ``(T, dimension)``."""
        return torch.full_like(context, self.value)
