"""Power losses at any moment: a reader finds a whole version or a clear error, and a second run finishes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fault_disk import Disk
from fault_process import Run, content, copy, delete, difference, in_fork, run_again

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.artifacts import kind_of, open_artifact
from gnnretrieval.storage.verifying import verify

if TYPE_CHECKING:
    from fault_commands import Command

TRIALS = 60  # of each command
_SHOWN = 3  # failures of a command that are printed


class Lost(NamedTuple):
    """Results of the power losses of one command.

    Attributes:
        old: Number of crashes after which a reader found the old version, or nothing if there was none.
        new: Number of crashes after which it found the new version.
        refused: Number of crashes after which it got a clear error.
        failures: Failures, one line each.
    """

    old: int
    new: int
    refused: int
    failures: list[str]


def lose_power(
    run: Run, base: Path | None, folder: Path, trials: int, seed: object, durable: tuple[Path, ...] = ()
) -> Lost:
    """Simulate power losses at random moments, read what each leaves on the disk, run again, and compare.

    Args:
        run: Makes something at a path.
        base: The artifact that is there before; None: none.
        folder: Where to work.
        trials: Number of power losses.
        seed: Seed of the moments and of the disks.
        durable: Paths of the inputs, which are already on the disk.
    """
    delete(folder)
    (followed := folder / "followed").mkdir(parents=True)
    log, count, place = folder / "log", folder / "count", followed / "place"
    if base is not None:
        copy(base, place)
    old = content(place) if base is not None else None

    def following(crashes: dict[int, list[int]]) -> None:
        disk, calls = Disk(followed, durable), 0

        def at(number: int, name: str) -> None:
            nonlocal calls
            calls = number + 1
            for trial in crashes.get(number, ()):
                disk.crash(folder / f"disk-{trial}", random.Random(f"{seed} {trial}"))

        disk.follow(at)
        run(place)
        count.write_text(json.dumps(calls))

    def followed_by(crashes: dict[int, list[int]]) -> None:
        if in_fork(lambda: following(crashes), log):
            raise RuntimeError(log.read_text(encoding="utf-8"))

    followed_by({})
    calls, new = json.loads(count.read_text()), content(place)
    delete(followed)
    followed.mkdir()
    if base is not None:
        copy(base, place)
    crashes: dict[int, list[int]] = {}
    draw = random.Random(str(seed))
    for trial in range(trials):
        crashes.setdefault(draw.randrange(calls), []).append(trial)
    followed_by(crashes)
    seen, failures = {"old": 0, "new": 0, "refused": 0}, []
    for trial in range(trials):
        disk = folder / f"disk-{trial}"
        if not disk.is_dir():
            failures.append(f"trial {trial}: a reader has no disk: the command made fewer calls than before")
            continue
        state = _read(disk / "place", old, new)
        if state in seen:
            seen[state] += 1
        faults = [] if state in seen else [state]
        faults += run_again(run, disk / "place", log, new)
        if faults:
            failures.append(f"{'; '.join(faults)} (trial {trial})")
        delete(disk)
    delete(folder)
    return Lost(seen["old"], seen["new"], seen["refused"], failures)


def _read(place: Path, old: dict[str, Any] | None, new: dict[str, Any]) -> str:
    """What a reader finds: ``old``, ``new`` or ``refused``; anything else is a failure, in words."""
    if "meta.json" not in new:
        if place.is_dir():
            whole = [path for path in place.iterdir() if kind_of(path) is not None and not path.name.startswith(".")]
            damaged = verify(whole).damaged if whole else []
            return f"a reader finds damage: {damaged[0]}" if damaged else "old"
        actual = content(place) if place.exists() else None
    else:
        try:
            actual = content(open_artifact(place, new["meta.json"]["kind"]).path)
        except GnnRetrievalError as error:
            if old is not None:
                return f"a reader is refused what was there before: {error}"
            return "refused"
    if actual in (old, new):
        return "old" if actual == old else "new"
    return f"a reader finds another in {difference(actual or {}, new)}"


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Simulate ``trials`` power losses in every command; None: 60."""
    from fault_commands import commands  # imported late: torch takes seconds to load

    rows = [_row(command, work, trials) for command in commands(work / "inputs")]
    return {
        "title": "Power lost at any moment",
        "done": (
            "Every rename, exchange, fsync and the like of each command was followed, and the disk was built as a "
            "power loss may leave it at moments drawn from a seed: each directory with the names of any moment since "
            "its last fsync, each file with the bytes of its last fsync and any part of what came after (cut, empty, "
            "zero, or some pages). A reader must then find the old version whole, the new one whole, or an error in "
            "words where there was no old one; and the same command must get to the unbroken result, byte for byte, "
            "with nothing left over. Anything else is a failure."
        ),
        "rows": rows,
        "tried": sum(row["trials"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
    }


def _row(command: Command, work: Path, trials: int | None) -> dict[str, Any]:
    trials = trials or TRIALS
    folder = work / "losses" / command.name.replace(" ", "-").replace(",", "")
    with progress(command.name, 1, "commands") as meter:
        lost = lose_power(command.run, command.base, folder, trials, command.name, (work / "inputs",))
        meter.advance()
    for line in lost.failures[:_SHOWN]:
        say(f"{command.name}: {line}")
    return {
        "command": command.name,
        "trials": trials,
        "reader found the old": lost.old,
        "the new": lost.new,
        "a clear error": lost.refused,
        "failures": len(lost.failures),
    }
