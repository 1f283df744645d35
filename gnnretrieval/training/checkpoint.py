"""Checkpoints that resume bit for bit: weights, average, optimizer and history in one safetensors file (law 8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gnnretrieval.errors import InputError
from gnnretrieval.storage.artifacts import whole_file


class Progress(NamedTuple):
    """Progress of training.

    Attributes:
        epoch: Number of epochs done.
        step: Number of steps done.
        history: One record per epoch or measurement, as in the log.
    """

    epoch: int
    step: int
    history: list[dict[str, Any]]


def save_checkpoint(
    path: Path,
    modules: Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor],
    progress: Progress,
) -> None:
    """Write a checkpoint atomically: if the process is killed meanwhile, the previous checkpoint stays."""
    tensors = {f"{name}.{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    tensors |= {f"best.{key}": value for key, value in best.items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
    kept = {key: value.detach().contiguous() for key, value in tensors.items()}
    with whole_file(path) as partial:
        save_file(kept, partial, {"progress": json.dumps(progress)})


def load_checkpoint(
    path: Path, modules: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[dict[str, Tensor], Progress]:
    """Restore ``modules`` and ``optimizer``; returns the best weights so far and the progress.

    Raises:
        InputError: The file is not a checkpoint of these modules.
    """
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (the file is not a mapping)
            progress = Progress(*json.loads(file.metadata()["progress"]))
        for name, module in modules.items():
            module.load_state_dict(_of(tensors, name))
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"this checkpoint cannot be resumed ({reason}). Delete it to train from the start.", path
        ) from None
    state = optimizer.state_dict()
    state["state"] = {}
    for key, value in _of(tensors, "optimizer").items():
        number, name = key.split(".", 1)
        state["state"].setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(state)
    return _of(tensors, "best"), progress


def _of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{prefix}.")}
