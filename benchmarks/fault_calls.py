"""Watch, from inside a process, the calls by which it changes the disk."""

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
    """Call ``before`` and ``after`` around every call that changes the disk, until this process ends.

    These calls are :data:`NAMES`, ``exchange``, and ``open`` of a file for writing. ``before`` and ``after`` receive
    the call's name and its arguments.
    """
    watching = True  # False while a watcher runs: its own calls are not watched

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
    vars(places)["exchange"] = watched("exchange", vars(places)["exchange"])
    builtins.open = io.open = watched("open", io.open, _writes)


def _writes(file: Any, mode: str = "r", *words: Any, **more: Any) -> bool:
    return isinstance(file, str | os.PathLike) and any(letter in mode for letter in "wax+")


class Kill:
    """Watcher that ends this process by SIGKILL before call number ``at``; None: it only counts.

    Attributes:
        names: Names of the calls so far.
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
