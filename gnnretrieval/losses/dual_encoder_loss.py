"""The losses that dual-encoders are trained by, found by themselves: one module of this folder each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from torch import Tensor


class LossBatch(NamedTuple):
    """What a loss sees of a batch of ``B`` queries and ``C`` passages.

    Attributes:
        scores: ``(B, C)`` similarities, scaled.
        positives: ``(B,)`` column of each query's positive.
        relevant: ``(B, C)`` bool: which passages are relevant to which query.
        between: Gives the positives' similarities to all passages ``(B, C)``, scaled.
        lists: Gives, of each query's positive and its own negatives, the scores, the cross-encoder's logits and where
            there are any, each ``(B, L)``.
        alpha: ``α``, the setting.
    """

    scores: Tensor
    positives: Tensor
    relevant: Tensor
    between: Callable[[], Tensor]
    lists: Callable[[], tuple[Tensor, Tensor, Tensor]]
    alpha: float


class DualEncoderLoss(NamedTuple):
    """A loss by its name in the settings.

    A module of this folder that has one as ``DUAL_ENCODER`` can be named by ``loss = …``: nothing else is to be told.

    Attributes:
        name: What ``loss`` is.
        of: The loss of a batch, a scalar.
        is_distilled: Whether it learns from the cross-encoder's probabilities (:attr:`LossBatch.lists`).
    """

    name: str
    of: Callable[[LossBatch], Tensor]
    is_distilled: bool = False


@cache
def dual_encoder_losses() -> dict[str, DualEncoderLoss]:
    """Every loss in this folder, by name."""
    import gnnretrieval.losses as folder

    modules = (import_module(f"{folder.__name__}.{module.name}") for module in iter_modules(folder.__path__))
    found = (module.DUAL_ENCODER for module in modules if hasattr(module, "DUAL_ENCODER"))
    return {loss.name: loss for loss in found}
