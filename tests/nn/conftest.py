from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestMade(TorchDispatchMode):
    """Numbers of the largest tensor that any operation made, forward or backward; a view of a given one is not made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor) and not func.is_view:
                self.numel = max(self.numel, value.numel())
        return result


@pytest.fixture
def largest_made() -> Callable[[], LargestMade]:
    return LargestMade


@pytest.fixture(autouse=True)
def seeded():
    """Layers begin with the same weights whatever ran before."""
    torch.manual_seed(0)
