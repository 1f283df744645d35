"""Commands killed before every call that changes the disk: readers see a whole version, and a second run finishes."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fault_calls import Kill, watch
from fault_process import Run, content, copy, delete, difference, in_fork, run_again

from gnnretrieval.errors import ArtifactError
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.artifacts import kind_of, open_artifact
from gnnretrieval.storage.verifying import verify

if TYPE_CHECKING:
    from fault_commands import Command

_RENAMES = ("rename", "replace", "exchange")  # if only some calls are tried, these come first
_SHOWN = 3  # failures of a command that are printed


class Killed(NamedTuple):
    """Results of the kills of one command.

    Attributes:
        calls: By name, the number of calls of an unbroken run before which a run was to be killed.
        killed: Number of runs that were killed.
        failures: Failures, one line each.
    """

    calls: Counter[str]
    killed: int
    failures: list[str]


def kill_at_every_call(run: Run, base: Path | None, folder: Path, moments: int | None = None) -> Killed:
    """Kill ``run`` before each of its calls, read what is there, run it again, and compare.

    Args:
        run: Makes something at a path.
        base: The artifact that is there before; None: none.
        folder: Where to work.
        moments: Number of kills, at calls drawn from a seed, renames first; None: one before each call.
    """
    delete(folder)
    folder.mkdir(parents=True)
    log, place, names = folder.with_suffix(".log"), folder / "place", folder.with_suffix(".calls")

    def lay() -> None:
        for left in folder.iterdir():
            delete(left)
        if base is not None:
            copy(base, place)

    def counted() -> None:
        watch(calls := Kill())
        run(place)
        names.write_text("\n".join(calls.names), encoding="utf-8")

    lay()
    old = content(place) if base is not None else None
    if in_fork(counted, log):
        raise RuntimeError(log.read_text(encoding="utf-8"))
    new, calls = content(place), names.read_text(encoding="utf-8").splitlines()
    at = sorted(range(len(calls)), key=lambda number: (calls[number] not in _RENAMES, random.Random(number).random()))
    at = sorted(at[:moments])
    killed, failures = 0, []
    for number in at:
        lay()

        def dying(number: int = number) -> None:
            watch(Kill(number))
            run(place)

        killed += in_fork(dying, log) == -signal.SIGKILL
        faults = [*filter(None, [_misread(place, old, new)]), *run_again(run, place, log, new)]
        if faults:
            failures.append(f"before call {number}, {calls[number]}: {'; '.join(faults)}")
    delete(folder)
    return Killed(Counter(calls[number] for number in at), killed, failures)


def _misread(place: Path, old: dict[str, Any] | None, new: dict[str, Any]) -> str:
    """The error that a reader meets; "" if it finds the old version or the new one, whole."""
    if "meta.json" not in new:
        if not place.is_dir():
            actual = content(place) if place.exists() else None
            return "" if actual in (old, new) else "a reader finds half a file"
        whole = [path for path in place.iterdir() if kind_of(path) is not None and not path.name.startswith(".")]
        damaged = verify(whole).damaged if whole else []
        return f"a reader finds damage: {damaged[0]}" if damaged else ""
    try:
        opened = open_artifact(place, new["meta.json"]["kind"])
    except ArtifactError as error:
        return "" if old is None and not place.exists() else f"a reader is refused: {error}"
    actual = content(opened.path)
    return "" if actual in (old, new) else f"a reader finds another in {difference(actual, new)}"


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Kill every command before every call, or before ``trials`` calls each."""
    from fault_commands import commands  # imported late: torch takes seconds to load

    rows = [_row(command, work, trials) for command in commands(work / "inputs")]
    return {
        "title": "Killed at every call",
        "done": (
            "Each command was killed (SIGKILL) before each rename, exchange, link, unlink, mkdir, rmdir, fsync and "
            "open for writing of an unbroken run. After each kill a reader opened what was there: the old version or "
            "the new one, whole. Then the same command ran again: it must succeed, leave nothing beside its result, "
            "and every file must have the bytes of the unbroken run (of `meta.json`, all but dates, versions and "
            "measured times). Anything else is a failure."
        ),
        "rows": rows,
        "tried": sum(row["kills"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
    }


def _row(command: Command, work: Path, trials: int | None) -> dict[str, Any]:
    with progress(command.name, 1, "commands") as meter:
        folder = work / "kills" / command.name.replace(" ", "-").replace(",", "")
        results = kill_at_every_call(command.run, command.base, folder, trials)
        meter.advance()
    for line in results.failures[:_SHOWN]:
        say(f"{command.name}: {line}")
    calls = results.calls
    return {
        "command": command.name,
        "renames and exchanges": sum(calls[name] for name in _RENAMES),
        "fsyncs": calls["fsync"],
        "other calls": sum(calls.values()) - sum(calls[name] for name in (*_RENAMES, "fsync")),
        "kills": sum(calls.values()),
        "killed while running": results.killed,
        "failures": len(results.failures),
    }
