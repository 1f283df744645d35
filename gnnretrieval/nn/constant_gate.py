"""A constant in the filter gate's place (the ablation of table 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConstantGate(nn.Module):
    r"""The same share :math:`\alpha` of every passage's context (`"GNN-encoder" <https://arxiv.org/abs/2204.08241>`_,
    §4.5): :math:`h'_p = \alpha \tilde h_p + h_p`.

    It learns nothing: :math:`\alpha` is chosen on dev, as a factor on ``value`` (the context scale).

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
        """:math:`\\alpha` in every place ``(T, dimension)``."""
        return torch.full_like(context, self.value)
