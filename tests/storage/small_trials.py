"""The trials of kills and power losses over commands of files alone: ``python small_trials.py DIRECTORY`` prints JSON.

Not a test itself: each trial is a fork, and one of this small process takes a tenth of the time of one of pytest's.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import numpy as np
from fault_process import Run, in_fork
from faults_kills import kill_at_every_call
from faults_power_loss import lose_power

from gnnretrieval.storage import artifacts, making, places, updating
from gnnretrieval.storage.artifacts import open_artifact, share_file, whole_file
from gnnretrieval.storage.making import make_artifact, record_progress
from gnnretrieval.storage.places import scratch, settle
from gnnretrieval.storage.updating import own_copy, record_changes, rewrite, update_artifact

KILLS, LOSSES = 12, 20  # of each command


def make(path: Path, text: str = "one") -> None:
    """Make an artifact in two steps, the second of which goes on from the first."""

    def write(directory: Path) -> dict[str, int]:
        done = scratch(directory) / "first.done"
        if not done.is_file():
            (directory / "inner").mkdir(exist_ok=True)
            (directory / "inner" / "first").write_bytes(text.encode() * 5000)
            record_progress(directory, done, True)
        with whole_file(directory / "second") as partial:
            partial.write_bytes((directory / "inner" / "first").read_bytes()[::-1])
        return {"count": 2}

    make_artifact(path, "numbers", inputs={"text": text}, config={}, write=write, overwrite=True)


def make_another(path: Path) -> None:
    """The same of another text."""
    make(path, "two")


def update(path: Path) -> None:
    """Change an artifact in one step."""
    settle(path, "numbers")
    artifact = open_artifact(path, "numbers")

    def write(directory: Path) -> dict[str, int]:
        rewrite(directory, "second").write_bytes(b"changed" * 3000)
        with own_copy(artifact, directory, "inner/first").open("ab") as file:
            file.write(b"more")
        share_file(artifact.path / "second", directory / "before")
        record_changes(directory, artifact, np.array([3]))
        return {"count": 3}

    update_artifact(artifact, "numbers", change={"to": 3}, write=write)


def write_file(path: Path) -> None:
    """Write a file whole."""
    with whole_file(path) as partial:
        partial.write_bytes(b"new" * 3000)


def with_other(room: Any, name: str, value: Any, trial: Callable[[], Any]) -> Any:
    """A trial while something is another thing."""
    before = getattr(room, name)
    setattr(room, name, value)
    try:
        return trial()
    finally:
        setattr(room, name, before)


def main(work: Path) -> dict[str, Any]:
    """What each trial found."""
    old, file = work / "old", work / "old-file"
    in_fork(lambda: make(old), work / "log")
    file.write_bytes(b"old" * 3000)
    commands: dict[str, tuple[Run, Path | None]] = {
        "make": (make, None),
        "make another": (make_another, old),
        "update": (update, old),
        "write a file": (write_file, file),
    }
    found: dict[str, Any] = {}

    def no_exchange(one: Path, other: Path) -> bool:
        return False

    def nothing(*words: Any, **more: Any) -> None:
        return None

    for name, command in commands.items():
        moments = None if name == "update" else KILLS
        found[f"kill, {name}"] = kill_at_every_call(*command, work / "kills", moments)._asdict()
        found[f"power, {name}"] = lose_power(*command, work / "losses", LOSSES, seed=name)._asdict()

    def without_exchange() -> Any:
        return with_other(places, "exchange", no_exchange, lambda: kill_at_every_call(update, old, work / "kills"))

    found["kill without exchange"] = without_exchange()._asdict()

    # And what the trials must notice: a gap that nobody closes, and names that come before their bytes.
    found["a gap"] = with_other(artifacts, "find", lambda path, kind: path, without_exchange)._asdict()
    for name, room in (("make", making), ("update", updating)):

        def losing(name: str = name) -> Any:
            return lose_power(*commands[name], work / "losses", 2 * LOSSES, seed=0)

        found[f"not synced, {name}"] = with_other(room, "sync_tree", nothing, losing)._asdict()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
