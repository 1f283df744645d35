"""What a stage in shards is.

A shard is a pure function of the stage's inputs. It writes one file, under a name of its own until the file is synced,
so that a file with the shard's name is whole. A shard that is run twice writes the same bytes twice. A stage is resumed
by running the shards that have no file, and its result does not depend on who ran them, or on how many there are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from gnnretrieval.errors import InputError
from gnnretrieval.storage.locks import beside


class Shard(NamedTuple):
    """One of the shards of a stage.

    Attributes:
        number: Its number, from 0.
        total: Number of shards.
    """

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that ``I/N`` names; the first is ``1/N``.

        Raises:
            InputError: It names none.
        """
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f"{text!r} is no shard: write its number and how many there are, such as 3/16.")
        return cls(int(number) - 1, int(count))

    def file(self, directory: Path, name: str) -> Path:
        """Path of this shard's file ``name``."""
        return directory / f"{name}-{self.number + 1:05d}-of-{self.total:05d}.npy"


class ShardedStage(Protocol):
    """A stage in shards. It is pickled for workers, which may be on other machines."""

    @property
    def name(self) -> str:
        """What is done, such as ``encoding passages``; progress shows it."""
        ...

    @property
    def unit(self) -> str:
        """What :attr:`parts` counts, such as ``passages``."""
        ...

    @property
    def device(self) -> str:
        """Device that a shard computes on."""
        ...

    @property
    def directory(self) -> Path:
        """Directory that shards write to."""
        ...

    @property
    def parts(self) -> Sequence[slice]:
        """The rows of each shard."""
        ...

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """The stage as a machine runs it that has its files elsewhere.

        Args:
            input_at: From the path of an input, a file or a directory, to where it is there.
            directory: Directory that shards write to there.
        """
        ...

    def path(self, number: int) -> Path:
        """The file that shard ``number`` writes last."""
        ...

    def run(self, number: int) -> None:
        """Compute shard ``number`` and write its file.

        Raises:
            GnnRetrievalError: It cannot be computed.
        """
        ...


class Together(NamedTuple):
    """Shards of one or several stages as one stage, so that the same workers run them and one bar shows them.

    Attributes:
        name: As :attr:`ShardedStage.name`.
        unit: As :attr:`ShardedStage.unit`.
        device: As :attr:`ShardedStage.device`.
        members: Each shard's stage, and its number there.
    """

    name: str
    unit: str
    device: str
    members: tuple[tuple[ShardedStage, int], ...]

    @property
    def parts(self) -> Sequence[slice]:
        """The rows of each shard, as in its stage."""
        return [stage.parts[number] for stage, number in self.members]

    @property
    def directory(self) -> Path:
        """As :attr:`ShardedStage.directory`; stages that run together share it."""
        return self.members[0][0].directory

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`ShardedStage.moved`."""
        return self._replace(
            members=tuple((stage.moved(input_at, directory), number) for stage, number in self.members)
        )

    def path(self, number: int) -> Path:
        """As :meth:`ShardedStage.path`."""
        stage, its_number = self.members[number]
        return stage.path(its_number)

    def run(self, number: int) -> None:
        """As :meth:`ShardedStage.run`."""
        stage, its_number = self.members[number]
        stage.run(its_number)


def one_shard(stage: ShardedStage, number: int) -> ShardedStage:
    """Shard ``number`` of a stage as a stage."""
    name = f"{stage.name}, shard {number + 1} of {len(stage.parts)}"
    return Together(name, stage.unit, stage.device, ((stage, number),))


def parts(total: int, count: int, unit: int = 1) -> list[slice]:
    """At most ``count`` consecutive slices that cover ``0 … total - 1``, of as equal length as whole units allow.

    Args:
        total: Number of rows.
        count: Number of slices; fewer are returned if there are fewer units.
        unit: Number of rows that stay together; every slice starts at a multiple of it.
    """
    units = -(-total // unit)
    count = min(count, units)
    bounds = [min(total, unit * (units * number // count)) for number in range(count + 1)] if count else []
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def shard_directory(out: Path, fingerprint: str) -> Path:
    """Directory of the shards of the artifact ``out`` with this fingerprint, hidden beside it."""
    return beside(out, "shards") / fingerprint[:16]


def discard_shards(out: Path) -> None:
    """Delete the shards of an artifact that is whole."""
    shutil.rmtree(beside(out, "shards"), ignore_errors=True)
