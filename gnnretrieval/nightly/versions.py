"""The versions of an updated search: whole directories of artifacts. One symbolic link promotes one of them.

``RUN/index``, ``RUN/graph`` and the others are links through ``RUN/current``, which names the promoted version. Links
are resolved when an artifact is opened, so it finds what it was made from in its own version. A reader therefore has
one version, even if another is promoted meanwhile.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gnnretrieval.errors import ArtifactError
from gnnretrieval.feedback.store import EventStore
from gnnretrieval.storage.artifacts import kind_of
from gnnretrieval.storage.durable import make_directory, sync_directory
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.locks import locked
from gnnretrieval.storage.provenance import write_json

ARTIFACTS = ("dataset", "features", "graph", "model", "embeddings", "index", "index-dual-encoder")
CURRENT, LEDGER, RECORD = "current", "ledger.jsonl", "version.json"
ROLLBACK, END_OF_ROLLBACK = "rollback", "end of rollback"  # actions of the ledger
_VERSIONS, _MAKING, _REPORTS = "versions", "making", "reports"


class Versions:
    """The versions in a directory, which need not exist yet.

    Attributes:
        path: The directory.
        store: Its events.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.store = EventStore(self.path / "events")

    @property
    def exists(self) -> bool:
        """Whether there is a version."""
        return bool(self.numbers())

    def numbers(self) -> list[int]:
        """Numbers of the versions, in order."""
        return sorted(int(place.name) for place in (self.path / _VERSIONS).glob("[0-9]*") if place.name.isdigit())

    def place(self, number: int) -> Path:
        """Directory of a version."""
        return self.path / _VERSIONS / f"{number:04d}"

    def making(self, name: str) -> Path:
        """Directory in which a version is made."""
        return self.path / _MAKING / name

    @property
    def promoted(self) -> int | None:
        """Number of the promoted version; None: there is none."""
        link = self.path / CURRENT
        return int(link.readlink().name) if link.is_symlink() else None

    def record(self, number: int) -> dict[str, Any]:
        """The record of a version: how it was made, and from which events.

        Raises:
            ArtifactError: there is no such version.
        """
        file = self.place(number) / RECORD
        if not file.is_file():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise ArtifactError(f"{self.path}: there is no version {number}. There are: {there}.")
        record: dict[str, Any] = read_json(file, "the record of a version")
        return record

    def is_forgotten(self, number: int) -> bool:
        """Whether a version was made from events that were forgotten since."""
        return bool(self.record(number)["epoch"] < self.store.epoch)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, so that only one process changes the versions, and finish what a killed process began.

        Raises:
            ArtifactError: another process holds it, or the directory has artifacts of another command.
        """
        for name in ARTIFACTS:
            place = self.path / name
            if place.exists() and not place.is_symlink():
                what = kind_of(place) or "a file or directory"
                raise ArtifactError(f"{place}: {what} of another command is here. Update into another directory.")
        make_directory(self.path)
        with locked(self.path / "update", "update"):
            self._recover()
            yield

    def ledger(self) -> list[dict[str, Any]]:
        """The lines of the ledger, oldest first."""
        file = self.path / LEDGER
        if not file.is_file():
            return []
        text = file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a kill or a full disk may have cut the last line
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def is_rolled_back(self) -> bool:
        """Whether a rollback was not ended yet: no new model is promoted until then."""
        decisions = [line["action"] for line in self.ledger() if line["action"] in (ROLLBACK, END_OF_ROLLBACK)]
        return decisions[-1:] == [ROLLBACK]

    @property
    def given_up(self) -> set[int]:
        """Numbers of the versions that rollbacks gave up which were not ended yet."""
        numbers = set[int]()
        for line in self.ledger():
            if line["action"] == ROLLBACK:
                numbers.update(range(line["to"] + 1, line["promoted"] + 1))
                numbers.discard(line["to"])
            elif line["action"] == END_OF_ROLLBACK:
                numbers.clear()
        return numbers

    def report_place(self, line: int) -> Path:
        """File of the report of the update that signed a line of the ledger, counted from 1."""
        return self.path / _REPORTS / f"{line:05d}.json"

    def sign(self, action: str, **entries: Any) -> None:
        """Add a line to the ledger: who did what, and when."""
        file = self.path / LEDGER
        line = {
            "action": action,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "who": _who(),
            **entries,
        }
        with file.open("r+b" if file.is_file() else "w+b") as opened:
            kept = opened.read()
            opened.truncate(kept.rfind(b"\n") + 1)  # drops a line that a kill cut
            opened.seek(0, os.SEEK_END)
            opened.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
            opened.flush()
            os.fsync(opened.fileno())
        sync_directory(self.path)

    def put(self, name: str, record: dict[str, Any]) -> int:
        """Make the artifacts under ``name`` a version, promote it, and sign the ledger; returns its number."""
        made = self.making(name)
        number = 1 + max([*self.numbers(), *(line.get("version") or 0 for line in self.ledger())], default=0)
        write_json(made / RECORD, {"version": number, "promoted": number, **record})
        make_directory(self.path / _VERSIONS)
        made.rename(self.place(number))  # after a kill from here on, :meth:`_recover` finishes the promotion
        sync_directory(self.path / _VERSIONS)
        self._finish(number)
        return number

    def promote(self, number: int) -> None:
        """Promote a version in one step: every later reader of the run opens it."""
        for name in ARTIFACTS:
            link = self.path / name
            if not link.is_symlink():
                link.symlink_to(Path(CURRENT) / name)
        partial = self.path / f".{CURRENT}.partial"
        partial.unlink(missing_ok=True)
        partial.symlink_to(Path(_VERSIONS) / self.place(number).name)
        partial.replace(self.path / CURRENT)
        sync_directory(self.path)

    def prune(self, keep: int) -> list[int]:
        """Delete versions: all but the promoted one and the last ``keep``, and those with forgotten events."""
        numbers, promoted = self.numbers(), self.promoted
        last = numbers[-keep:]
        deleted = [
            number for number in numbers if number != promoted and (number not in last or self.is_forgotten(number))
        ]
        for number in deleted:
            self._delete(self.place(number))
        return deleted

    def clear(self) -> None:
        """Delete unfinished versions."""
        self._delete(self.path / _MAKING)

    def _finish(self, number: int) -> None:
        self.promote(number)
        self.sign("update", **self.record(number))

    def _recover(self) -> None:
        """Finish a promotion and deletions that were interrupted."""
        self.store.finish_forgetting()
        numbers = self.numbers()
        signed = {line.get("version") for line in self.ledger()}
        if numbers and numbers[-1] not in signed:  # put among the versions, and about to be promoted
            self._finish(numbers[-1])
            self.clear()
        for left in (self.path / _VERSIONS).glob(".*"):
            shutil.rmtree(left)

    def _delete(self, place: Path) -> None:
        """Delete a directory. It is renamed first, so that no reader opens a part of it."""
        if place.exists():
            renamed = self.path / _VERSIONS / f".{place.name}"
            make_directory(renamed.parent)
            place.rename(renamed)
            sync_directory(place.parent)
            shutil.rmtree(renamed)


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process without an account
        return "unknown"
