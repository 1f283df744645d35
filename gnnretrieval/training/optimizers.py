"""Optimizers of encoder training, the learning rate schedule, and the check that training has not diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from gnnretrieval.errors import GnnRetrievalError, nearest
from gnnretrieval.platform.extras import extra

OptimizerName = Literal["adamw", "adam", "lamb"]
_NAMES = ("adamw", "adam", "lamb")
_STEP = "step"


def make_optimizer(
    name: OptimizerName, parameters: Sequence[tuple[str, nn.Parameter]], learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Make an optimizer that resumes bit for bit from :mod:`gnnretrieval.training.checkpoint`.

    ``adam`` adds weight decay to the gradient, ``adamw`` subtracts it from the weights (Loshchilov and Hutter 2019).
    ``lamb`` (You et al. 2020, Algorithm 2), for batches of thousands, adds it to Adam's update and scales the update to
    the norm of the weight (at most 10) times the learning rate.

    Args:
        name: ``adamw``, ``adam`` or ``lamb``.
        parameters: Names and parameters, as from ``Module.named_parameters()``; frozen ones are left out.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay of matrices; parameters with one dimension (biases, normalisation) have none.

    Raises:
        GnnRetrievalError: The name is unknown, all parameters are frozen, or LAMB is not installed.
    """
    trained = [parameter for _, parameter in parameters if parameter.requires_grad]
    if not trained:
        raise GnnRetrievalError("there is nothing to train: every parameter is frozen.")
    matrices, vectors = ([parameter for parameter in trained if (parameter.ndim > 1) is wide] for wide in (True, False))
    groups: list[dict[str, Any]] = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((matrices, weight_decay), (vectors, 0.0))
        if members
    ]
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=learning_rate, fused=True)
    if name == "adam":
        return torch.optim.Adam(groups, lr=learning_rate, fused=True)
    if name == "lamb":
        return _lamb(groups, learning_rate)
    raise GnnRetrievalError(f"no optimizer is called {name!r}: give one of {', '.join(_NAMES)}.{nearest(name, _NAMES)}")


def linear_schedule(step: float, total: int, warmup_share: float) -> float:
    """Factor on the learning rate at ``step`` (from 0) of ``total``: linear warm-up, then linear decay to 0.

    The factor is 1 at the last step of the warm-up and reaches 0 after the last step. ``step`` may be a fraction.
    """
    warm = max(1, round(warmup_share * total))
    return min(1.0, (step + 1) / warm, max(0.0, (total - step) / max(1, total - warm)))


def require_finite_step(step: int, loss: float, norm: float, remedy: str) -> None:
    """Check a step before its update.

    An update that is not finite makes all weights NaN. Dev would then keep an earlier epoch, as if nothing was gained.

    Args:
        step: Number of the step, from 0.
        loss: Its loss.
        norm: Norm of its gradient.
        remedy: Sentence that names the setting to change.

    Raises:
        GnnRetrievalError: Loss or norm is not finite.
    """
    if math.isfinite(loss) and math.isfinite(norm):
        return
    what = f"the loss of step {step + 1:,} is {loss:g}, and its gradient has the norm {norm:g}."
    if not step:
        raise GnnRetrievalError(
            f"training cannot begin: {what} As nothing was learned yet, no learning rate helps. Check the weights and "
            "vectors that it starts from, and the scale of the similarity."
        )
    raise GnnRetrievalError(f"training has diverged: {what} {remedy}")


def _lamb(groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
    lamb = extra("pytorch_optimizer", "lamb", "LAMB").Lamb
    # weight_decouple=False: decay inside the trust ratio, as in the paper. adam_debias=True: no bias correction of the
    # moments, because the trust ratio cancels any factor; a correction after it would make the first step ten times
    # larger.
    optimizer: torch.optim.Optimizer = lamb(
        groups, lr=learning_rate, weight_decay=0.0, weight_decouple=False, adam_debias=True
    )
    optimizer.register_state_dict_post_hook(_with_step)
    optimizer.register_load_state_dict_post_hook(_restore_step)
    return optimizer


def _with_step(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """LAMB's state as tensors per parameter, which a checkpoint can hold: moments and the groups' step count.

    Norms and trust ratios of the last step, which are only informative, are left out.
    """
    step_of = {number: group.get(_STEP, 0) for group in state["param_groups"] for number in group["params"]}
    moments = {
        number: {
            **{key: value for key, value in kept.items() if key.startswith("exp_avg")},
            _STEP: torch.tensor(step_of[number]),
        }
        for number, kept in state["state"].items()
    }
    return {**state, "state": moments}


def _restore_step(optimizer: torch.optim.Optimizer) -> None:
    """Restore the groups' step count from the loaded state; it is the same for all groups."""
    steps = [int(kept[_STEP]) for kept in optimizer.state.values() if _STEP in kept]
    for group in optimizer.param_groups if steps else ():
        group[_STEP] = max(steps)
