"""Devices by name."""

from __future__ import annotations

import torch

from gnnretrieval.errors import InputError


def as_device(name: str | torch.device, *, here: bool = True) -> torch.device:
    """The device ``cpu``, ``cuda`` or ``cuda:1``.

    Args:
        name: Its name.
        here: Whether this machine must have it, and not only its workers.

    Raises:
        InputError: There is no such device, or not here.
    """
    try:
        device = torch.device(name)
        if here:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"device {str(name)!r} cannot be used: {reason}. Without it, the CPU is used.") from None
    return device
