"""A stage for tests: a module that workers can import."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from gnnretrieval.errors import InputError
from gnnretrieval.shards import Shard, parts
from gnnretrieval.storage.artifacts import whole_file


@dataclass(frozen=True)
class Squares:
    """Squares of 0 … total - 1; every run is noted, and some shards end otherwise.

    Attributes:
        directory: Where files go.
        total: Number of squares.
        count: Number of shards.
        killed: Shards whose worker is killed the first time, before it writes.
        always_killed: Shards whose worker is killed every time.
        refused: Shards that raise an error.
        noted: Where runs are noted; None: where files go.
    """

    directory: Path
    total: int = 20
    count: int = 5
    killed: tuple[int, ...] = ()
    always_killed: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    noted: Path | None = None
    name: str = "squaring"
    unit: str = "numbers"
    device: str = "cpu"

    @property
    def parts(self) -> list[slice]:
        return parts(self.total, self.count)

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        return replace(self, directory=directory)

    def path(self, number: int) -> Path:
        return Shard(number, self.count).file(self.directory, "squares")

    def run(self, number: int) -> None:
        before = self.runs(number)
        (self._notes / f"run-{number}-{before}").touch()
        if number in self.always_killed or (number in self.killed and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.refused:
            raise InputError("this shard cannot be squared.", self.directory)
        part = self.parts[number]
        with whole_file(self.path(number), shared=True) as partial, partial.open("wb") as file:
            np.save(file, np.arange(part.start, part.stop) ** 2)

    def runs(self, number: int) -> int:
        """How often a shard was begun."""
        return len(list(self._notes.glob(f"run-{number}-*")))

    @property
    def _notes(self) -> Path:
        return self.noted or self.directory

    def merged(self) -> list[int]:
        """The result."""
        return np.concatenate([np.load(self.path(number)) for number in range(self.count)]).tolist()
