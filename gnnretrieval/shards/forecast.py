"""The dry run of a stage in shards: bytes, and time by the number of workers, from a short measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from gnnretrieval.pages.quantities import in_bytes, in_time
from gnnretrieval.pages.reports import Report
from gnnretrieval.platform.threads import one_thread

SECONDS = 5.0  # that a measurement takes, about


class Measured(NamedTuple):
    """Units of a stage that were done for a measurement, and the seconds that they took."""

    units: float
    seconds: float


class StageForecast(Report):
    """What a stage will take.

    Attributes:
        name: What is done.
        unit: What is counted.
        units: Number of them.
        shards: Number of shards.
        rate: Units a second by one worker.
        measured: Units that were done to measure it.
        begin: Seconds until a worker is at its first shard.
        shard_bytes: Bytes of the shards' files, which are deleted when they are joined.
    """

    name: str
    unit: str
    units: int
    shards: int
    rate: float
    measured: int
    begin: float
    shard_bytes: int

    def seconds(self, workers: int) -> float:
        """Seconds with this number of workers: the last round of shards is a whole one."""
        rounds = -(-self.shards // workers)
        return self.begin + rounds * self.units / max(self.shards, 1) / self.rate

    def to_text(self) -> str:
        """One line."""
        shards = "one shard" if self.shards == 1 else f"{self.shards:,} shards"
        rate = f"{self.rate:,.0f}" if self.rate >= 1000 else f"{self.rate:.4g}"
        return (
            f"{self.name}: {self.units:,} {self.unit} in {shards}, {rate} a second by one "
            f"worker ({self.measured:,} measured), and {self.begin:.1f} s to begin"
        )


class Forecast(Report):
    """What a command in shards will take, without merging.

    Attributes:
        stages: Its stages, one after the other.
        result_bytes: Bytes of the result on disk, about.
        worker: What a worker is.
    """

    stages: tuple[StageForecast, ...]
    result_bytes: int
    worker: str

    def seconds_by_workers(self) -> dict[int, float]:
        """Seconds by number of workers: 1, 2, 4, … up to the number of shards."""
        most = max((stage.shards for stage in self.stages), default=1)
        workers = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
        return {count: sum(stage.seconds(count) for stage in self.stages) for count in workers}

    def to_text(self) -> str:
        """Some lines."""
        times = self.seconds_by_workers()
        shards = in_bytes(sum(stage.shard_bytes for stage in self.stages))
        return "\n".join(
            [
                *(stage.to_text() for stage in self.stages),
                f"on disk: about {in_bytes(self.result_bytes)}, and {shards} for the shards until they are joined",
                f"time by workers, each {self.worker}:",
                *(f"  {count:>7,}  {in_time(seconds)}" for count, seconds in times.items()),
                "a dry run: nothing was made",
            ]
        )


def measure(work: Callable[[int], None], most: int, first: int = 32) -> Measured:
    """Do more and more units until it takes about :data:`SECONDS`; the last time is the measurement.

    Args:
        work: Does some units.
        most: Largest number of units.
        first: Smallest number.
    """
    units = min(most, first)
    work(units)  # memory and caches are ready after this one
    while True:
        begun = time.perf_counter()
        work(units)
        seconds = time.perf_counter() - begun
        if units == most or seconds > SECONDS / 4:
            return Measured(units, max(seconds, 1e-9))
        units = min(most, max(2 * units, round(units * SECONDS / 2 / max(seconds, SECONDS / 100))))


@contextmanager
def as_a_worker(device: str) -> Iterator[str]:
    """Compute as one worker does meanwhile, and say what that is: one thread, or a device."""
    if device == "cpu":
        with one_thread():
            yield "of one thread, with a processor for itself"
    else:
        yield f"on a device like {device}"


def spread(count: int, most: int) -> Sequence[int]:
    """At most ``most`` of ``0 … count - 1``, evenly spread."""
    return [count * number // min(count, most) for number in range(min(count, most))]
