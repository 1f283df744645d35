"""What the first process of a run tells the others, which wait for it as long as it lives.

It mines, encodes and measures alone, for hours on large data. A collective operation would time out, so the others look
for its message in the group's store. There it leaves a sign of life every few seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore, Store

from gnnretrieval.errors import GnnRetrievalError

BEAT = 5.0  # seconds between signs of life
PATIENCE = 120.0  # seconds without one, after which the first process counts as dead
PATIENCE_VARIABLE = "GNNRETRIEVAL_PATIENCE"  # another number of seconds
_LONGEST_WAIT = 0.25  # seconds between two looks
_ALIVE, _ENDED, _LEFT = "alive", "ended", "left"


class ProcessGoneError(GnnRetrievalError):
    """Another process of this run has ended."""

    def __init__(self, which: str, what: str) -> None:
        super().__init__(
            f"{which} of this training run {what}. Its own message says why. Run the same command again to go on."
        )


class FirstProcess:
    """Messages of the first process, in a store that all processes reach.

    Args:
        store: The group's store.
        rank: Number of this process.
        count: Number of processes.
    """

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self._store, self._rank, self._count = PrefixStore("gnnretrieval", store), rank, count
        self._said = 0
        self._patience = float(os.environ.get(PATIENCE_VARIABLE) or PATIENCE)

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Keep the first process's signs of life up while the block runs, and let it leave last."""
        ended = Event()
        beating = Thread(target=self._beat, args=(ended,), daemon=True)
        if self._rank == 0:
            beating.start()
        try:
            yield
            self._leave()
        finally:
            ended.set()
            if self._rank == 0:
                beating.join()
                with suppress(RuntimeError):  # the store went with the process that held it
                    self._store.set(_ENDED, "1")

    def say(self, value: Any) -> Any:
        """The first process's ``value`` (anything JSON can hold), for all.

        Raises:
            ProcessGoneError: the first process ended before it said it.
        """
        name, self._said = f"said/{self._said}", self._said + 1
        if self._rank == 0:
            self._store.set(name, json.dumps(value))
            return value
        self._await(name)
        return json.loads(self._store.get(name))

    def _await(self, name: str) -> None:
        """Look for ``name`` until it is there or the first process shows no life."""
        beat, seen, pause = b"", time.monotonic(), 0.001
        try:
            while not self._store.check([name]):
                if self._store.check([_ENDED]) and not self._store.check([name]):
                    raise ProcessGoneError("The first process", "has ended")
                now = self._store.get(_ALIVE) if self._store.check([_ALIVE]) else b""
                if now != beat:
                    beat, seen = now, time.monotonic()
                elif time.monotonic() - seen > self._patience:
                    raise ProcessGoneError("The first process", f"has shown no life for {self._patience:.0f} seconds")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_WAIT)
        except RuntimeError:  # the store went with the process that held it
            raise ProcessGoneError("The first process", "cannot be reached any more") from None

    def _beat(self, ended: Event) -> None:
        number = 0
        while not ended.is_set():
            try:
                self._store.set(_ALIVE, str(number))
            except RuntimeError:  # the store went with the process that held it
                return
            number += 1
            ended.wait(min(BEAT, self._patience / 4))

    def _leave(self) -> None:
        """Make the first process, which may hold the store, wait until the others have read its last message."""
        deadline = time.monotonic() + self._patience
        with suppress(RuntimeError):  # the store went with the process that held it
            self._store.add(_LEFT, 1)
            while self._rank == 0 and self._store.add(_LEFT, 0) < self._count and time.monotonic() < deadline:
                time.sleep(_LONGEST_WAIT / 10)
