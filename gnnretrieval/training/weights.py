"""Float32 weights that are updated, and the copy in a lower precision that computes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gnnretrieval.training.encoder.towers import Tower


class MasterWeights:
    """The float32 parameters of some towers.

    In bfloat16, forward and backward passes run on rounded copies, their gradients are summed into the float32 weights
    as each part of a batch is done, and :meth:`publish` rounds the updated weights again. A fused autocast would cast
    every weight in every pass, and is slower.

    Args:
        towers: Whose parameters; a tower that comes twice is one.
        dtype: Of the copies; float32: there are none.
    """

    def __init__(self, towers: Sequence[Tower], dtype: torch.dtype) -> None:
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
                parameter.register_post_accumulate_grad_hook(_Into(master))  # type: ignore[no-untyped-call]
        for module in self.rounded:
            for parameter in module.parameters():
                parameter.data = parameter.data.to(dtype)
            _gradients_by_token(module, True)

    @torch.no_grad()
    def publish(self) -> None:
        """Give the copies the weights as they are now."""
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
        """Put the float32 weights into the towers, to be saved."""
        for module in self.rounded:
            for parameter in module.parameters():
                parameter.data = parameter.data.float()
            _gradients_by_token(module, False)
        for parameter, master in zip(self.working, self.parameters, strict=True):
            parameter.data = master.data


def _gradients_by_token(module: nn.Module, by_token: bool) -> None:
    """Whether a part's gradient of an embedding holds its tokens' rows alone, or the whole vocabulary's."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            part.sparse = by_token


class _Into:
    """Adds a finished gradient to the float32 weight's, and frees it."""

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
