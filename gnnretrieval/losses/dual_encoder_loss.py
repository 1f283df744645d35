"""Registry of the losses for dual-encoders: every module of this folder that defines ``DUAL_ENCODER``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from torch import Tensor


class LossBatch(NamedTuple):
    """Input of a loss: a batch of ``B`` queries and ``C`` passages.

    ``between`` and ``lists`` are functions, so that only a loss that needs them pays for them.

    Attributes:
        scores: ``(B, C)`` similarity of each query to each passage, scaled by its temperature.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True where the passage is relevant to the query.
        between: Returns the similarity of each query's positive to each passage ``(B, C)``, scaled.
        lists: Returns scores, the cross-encoder's logits and a mask of filled places, each ``(B, L)``, for each
            query's positive followed by its hard negatives.
        alpha: ``α`` of :func:`~gnnretrieval.losses.pair_loss`, from the settings.
    """

    scores: Tensor
    positives: Tensor
    relevant: Tensor
    between: Callable[[], Tensor]
    lists: Callable[[], tuple[Tensor, Tensor, Tensor]]
    alpha: float


class DualEncoderLoss(NamedTuple):
    """A loss and its name in the settings.

    A module of this folder registers one by defining ``DUAL_ENCODER``.

    Attributes:
        name: The value of ``loss`` in a recipe.
        of: Computes the loss of a batch, a scalar.
        is_distilled: Whether the loss learns from the cross-encoder's probabilities (:attr:`LossBatch.lists`).
    """

    name: str
    of: Callable[[LossBatch], Tensor]
    is_distilled: bool = False


@cache
def dual_encoder_losses() -> dict[str, DualEncoderLoss]:
    """All losses of this folder, by name."""
    import gnnretrieval.losses as folder

    modules = (import_module(f"{folder.__name__}.{module.name}") for module in iter_modules(folder.__path__))
    losses = (module.DUAL_ENCODER for module in modules if hasattr(module, "DUAL_ENCODER"))
    return {loss.name: loss for loss in losses}
