"""The stages of a recipe: which one runs, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from gnnretrieval.platform.memory import give_back_freed_memory
from gnnretrieval.progress import indented, say


@contextmanager
def timed_stage(name: str) -> Iterator[None]:
    """Name a stage, indent what is said inside of it, and say how long it took."""
    start = time.monotonic()
    say(f"[{name}]")
    with indented():
        try:
            yield
        finally:
            give_back_freed_memory()  # an encoder's training leaves gigabytes, and what comes next may need little
        say(f"{time.monotonic() - start:.1f} s")
