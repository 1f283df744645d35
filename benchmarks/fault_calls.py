"""Watching the calls by which a process changes what is on the disk, from inside it."""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable
from typing import Any

from gnnretrieval.storage import places

NAMES = ("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir", "fsync")

Before = Callable[[str, tuple[Any, ...]], None]


def watch(before: Before, after: Before = lambda name, words: None) -> None:
    """Have ``before`` and ``after`` called, in this process until it ends, around every call with its arguments.

    The calls are :data:`NAMES`, ``exchange``, and ``open`` of a file for writing.
    """
    watching = True  # but not what the watchers do themselves

    def watched(name: str, call: Callable[..., Any], applies: Callable[..., bool] = lambda *w, **m: True) -> Any:
        def calling(*words: Any, **more: Any) -> Any:
            nonlocal watching
            if not watching or not applies(*words, **more):
                return call(*words, **more)
            watching = False
            try:
                before(name, words)
                done = call(*words, **more)
                after(name, words)
            finally:
                watching = True
            return done

        return calling

    for name in NAMES:
        setattr(os, name, watched(name, getattr(os, name)))
    places.exchange = watched("exchange", places.exchange)
    builtins.open = io.open = watched("open", io.open, _writes)


def _writes(file: Any, mode: str = "r", *words: Any, **more: Any) -> bool:
    return isinstance(file, str | os.PathLike) and any(letter in mode for letter in "wax+")


class Kill:
    """Ends this process by SIGKILL before the call with this number; ``None``: counts alone.

    Attributes:
        names: Of the calls so far.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.names = at, list[str]()
        self._process = os.getpid()

    def __call__(self, name: str, words: tuple[Any, ...]) -> None:
        if os.getpid() != self._process:
            return
        if len(self.names) == self.at:
            os.kill(self._process, signal.SIGKILL)
        self.names.append(name)
