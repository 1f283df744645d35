"""What a run says of its stages."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnnretrieval.platform.memory import give_back_freed_memory


class Stages:
    """Says which stage runs, and how long it took."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._name, self._start = "", 0.0

    def say(self, line: str) -> None:
        """A line of the stage that runs."""
        self._say(f"  {line}")

    def __call__(self, name: str) -> Stages:
        """The stage ``name``, to be entered."""
        self._name = name
        return self

    def __enter__(self) -> None:
        self._start = time.monotonic()
        self._say(f"[{self._name}]")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        give_back_freed_memory()  # an encoder's training leaves gigabytes, and what comes next may need little
        if kind is None:
            self.say(f"{time.monotonic() - self._start:.1f} s")
