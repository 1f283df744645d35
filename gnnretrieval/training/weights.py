"""Float32 master weights for updates, and their copies in lower precision for computing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnnretrieval.training.encoder.towers import Trained


class MasterWeights:
    """The float32 parameters of some towers, and of what is trained beside them.

    In bfloat16, both passes run on rounded copies. The gradients of each part of a batch are added to the float32
    weights, and :meth:`publish` rounds the updated weights again. Autocast is slower: it casts every weight in every
    pass.

    Args:
        towers: The towers; one that occurs twice counts once.
        dtype: Type of the copies; float32: there are no copies.
    """

    def __init__(self, towers: Sequence[Trained], dtype: torch.dtype) -> None:
        unique = {id(parameter): parameter for tower in towers for parameter in tower.trained()}
        self.working = list(unique.values())
        self.rounded = [] if dtype == torch.float32 else [tower.rounded for tower in towers]
        rounded = {id(parameter) for module in self.rounded for parameter in module.parameters()}
        self.parameters = nn.ParameterList(
            nn.Parameter(parameter.detach().clone()) if id(parameter) in rounded else parameter
            for parameter in self.working
        )
        for parameter, master in zip(self.working, self.parameters, strict=True):
            if parameter is not master:
                parameter.register_post_accumulate_grad_hook(_AddGradientTo(master))  # type: ignore[no-untyped-call]
        for module in self.rounded:
            for parameter in module.parameters():
                parameter.data = parameter.data.to(dtype)
            _gradients_by_token(module, True)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the current weights to the rounded copies."""
        for parameter, master in zip(self.working, self.parameters, strict=True):
            if parameter is not master:
                parameter.copy_(master)

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of all weights."""
        return {str(number): master.detach().clone() for number, master in enumerate(self.parameters)}

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor]) -> None:
        """Set all weights to a :meth:`snapshot`."""
        for number, master in enumerate(self.parameters):
            master.copy_(weights[str(number)])
        self.publish()

    @torch.no_grad()
    def to_float32(self) -> None:
        """Put the float32 weights into the towers, for saving."""
        for module in self.rounded:
            for parameter in module.parameters():
                parameter.data = parameter.data.float()
            _gradients_by_token(module, False)
        for parameter, master in zip(self.working, self.parameters, strict=True):
            parameter.data = master.data


def _gradients_by_token(module: nn.Module, by_token: bool) -> None:
    """Set whether gradients of embeddings are sparse (rows of the part's tokens only) or cover the vocabulary."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            part.sparse = by_token


class _AddGradientTo:
    """Hook: adds a parameter's gradient to that of its float32 weight, and frees it."""

    def __init__(self, master: nn.Parameter) -> None:
        self.master = master

    def __call__(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        if self.master.grad is None:
            self.master.grad = torch.zeros_like(self.master)
        if parameter.grad.is_sparse:
            rows, values = parameter.grad._indices()[0], parameter.grad._values()
            self.master.grad.index_add_(0, rows, values.float())
        else:
            self.master.grad.add_(parameter.grad)
        parameter.grad = None
