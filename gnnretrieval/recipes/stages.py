"""Messages of a run about its stages."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnnretrieval.platform.memory import give_back_freed_memory


class Stages:
    """Prints which stage runs, and how long it took."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._name, self._start = "", 0.0

    def say(self, line: str) -> None:
        """Print a line of the current stage."""
        self._say(f"  {line}")

    def __call__(self, name: str) -> Stages:
        """Name the next stage, for a ``with`` statement."""
        self._name = name
        return self

    def __enter__(self) -> None:
        self._start = time.monotonic()
        self._say(f"[{self._name}]")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        give_back_freed_memory()  # training an encoder leaves gigabytes that the next stage may not need
        if kind is None:
            self.say(f"{time.monotonic() - self._start:.1f} s")
