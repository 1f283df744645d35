"""The event store: the events of all logs that were ever read, each once, in files.

Each addition is a new file, written whole. Times, questions and shown passages are kept as they were logged, or masked.
Instead of a session, its keyed hash is kept: enough to count one vote a session, and to forget it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnretrieval.data.lines import read_lines
from gnnretrieval.errors import ArtifactError
from gnnretrieval.feedback.cleaning import question_key
from gnnretrieval.feedback.columns import FIELDS
from gnnretrieval.feedback.events import Event, Log, Shown
from gnnretrieval.feedback.redaction import redacted
from gnnretrieval.pages.reports import Figures
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.durable import make_directory, sync_directory
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json, write_json

_KEY, _EPOCH = "key", "forgotten.json"
_COLUMNS = {field: field for field in FIELDS if field not in ("passage", "position")}


class StoredFigures(Figures):
    """Counts of an addition to the store."""

    read: int
    """Events of the logs."""
    added: int
    known: int
    """Events that the store had already."""
    too_old: int
    """Events before the retention's limit, in the logs."""
    forgotten: int
    """Events in the logs that were forgotten before: they are not added again."""
    deleted: int
    """Events of the store that were before it: they are deleted."""
    stored: int
    """Events in the store."""


class StoredLog:
    """A file of the store, read as a log.

    Attributes:
        path: The file.
        has_lists: As of the log that its events came from.
    """

    def __init__(self, path: Path, has_lists: bool) -> None:
        self.path, self.has_lists = path, has_lists

    @property
    def columns(self) -> dict[str, str]:
        """Column by field: all fields, by their own names."""
        return dict(_COLUMNS)

    def events(self) -> Iterator[Event]:
        """The events, in the order in which they were added.

        Raises:
            ArtifactError: the file is damaged.
        """
        for number, line in _lines(self.path):
            yield _event(line, self.path, number)


class EventStore:
    """The events in a directory, which need not exist yet.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory)

    def logs(self) -> list[StoredLog]:
        """The files, in the order of their additions."""
        return [StoredLog(file, file.stem.endswith("lists")) for file in self._files()]

    @property
    def hash(self) -> str:
        """sha256 over the files: equal if nothing was added, deleted or forgotten."""
        return sha256_of_json({file.name: sha256_of_file(file) for file in self._files()})

    @property
    def epoch(self) -> int:
        """How often events were forgotten."""
        return int(self._forgotten["times"])

    @property
    def _forgotten(self) -> dict[str, Any]:
        """How often events were forgotten, and by hash the time before which they are."""
        file = self.path / _EPOCH
        if not file.is_file():
            return {"times": 0, "until": {}}
        record = read_json(file, "record of forgotten events")
        if isinstance(record, dict) and type(record.get("times")) is int and isinstance(record.get("until"), dict):
            return record
        raise ArtifactError(f"{file}: damaged; wanted how often events were forgotten, and until when.")

    def add(
        self, logs: Sequence[Log], *, redact: bool = False, keep_from: float | None = None, dry_run: bool = False
    ) -> StoredFigures:
        """Add the events of ``logs`` that are not in the store, and delete events that are too old.

        An event that a log has twice is two events. If another log or the store has it twice too, they are the
        same two: logs may overlap, and may be read again after they grew. Events are compared as if they were masked,
        so that ``redact`` may change from one addition to the next; it does not mask what the store has.

        Args:
            logs: The logs.
            redact: Mask personal data in questions before anything is written.
            keep_from: Seconds since 1970; events before are neither added nor kept. None: all are.
            dry_run: Only count.
        """
        key = self._key(create=not dry_run)
        stored, old = self._stored(keep_from)
        total, read, too_old, known, forgotten = stored.total(), 0, 0, 0, 0
        until = self._forgotten["until"]
        fresh: dict[bool, list[str]] = {True: [], False: []}
        for log in logs:
            seen: Counter[bytes] = Counter()
            for event in log.events():
                read += 1
                if keep_from is not None and event.time < keep_from:
                    too_old += 1
                    continue
                if until and any(event.time < until.get(hash_, 0.0) for hash_ in _hashes(event, key)):
                    forgotten += 1
                    continue
                kept = event._replace(session=_hashed(event.session, key) if event.session else "")
                masked = _masked(kept)
                digest = _digest(masked)
                seen[digest] += 1
                # Logs may overlap, but what one log repeats are several events.
                if seen[digest] <= stored[digest]:
                    known += 1
                    continue
                stored[digest] += 1
                fresh[log.has_lists].append(_line(masked if redact else kept))
        added = sum(map(len, fresh.values()))
        if not dry_run:
            if old:
                self._keep(lambda event: event.time >= (keep_from or 0.0))
            for has_lists, lines in fresh.items():
                if lines:
                    self._write(lines, has_lists)
        return StoredFigures(
            read=read,
            added=added,
            known=known,
            too_old=too_old,
            forgotten=forgotten,
            deleted=old,
            stored=total - old + added,
        )

    def _stored(self, keep_from: float | None) -> tuple[Counter[bytes], int]:
        """How often the store has each event, and the number of its events before ``keep_from``."""
        stored: Counter[bytes] = Counter()
        old = 0
        for file in self._files():
            for number, line in _lines(file):
                event = _event(line, file, number)
                stored[_digest(_masked(event))] += 1
                old += keep_from is not None and event.time < keep_from
        return stored, old

    def forget(self, sessions: Collection[str], questions: Collection[str]) -> int:
        """Delete the events of ``sessions`` and ``questions``; returns how many. Says which of these have none.

        What was made from them must be made again without them: :attr:`epoch` grows. Logs that still have them may be
        read again: hashes say which events from before now to leave out.

        Args:
            sessions: As in the logs.
            questions: Their texts, in any spelling, or as they were masked.
        """
        key = self._key(create=False)
        # No hash of an empty name is recorded: events without a session would be forgotten by it.
        hashed = {_hashed(session, key): session for session in sessions if session}
        keys = {
            named: question
            for question in questions
            for text in (question, redacted(question))
            if (named := question_key(text))
        }
        count, known, last = 0, set[str](), 0.0
        for event in itertools.chain.from_iterable(log.events() for log in self.logs()):
            meant = [hashed.get(event.session), keys.get(question_key(event.question))]
            if meant != [None, None]:
                count, last = count + 1, max(last, event.time)
            known.update(name for name in meant if name is not None)
        if count:
            for name in sorted({*hashed.values(), *keys.values()} - known):
                say(f"no event in the store is of {name!r}")
            # Times in a local zone that a log does not name may be hours ahead of the clock.
            before, end = self._forgotten, max(time.time(), math.nextafter(last, math.inf))
            pending = sorted({*hashed, *(_hashed(text, key) for text in keys)})
            until = before["until"] | dict.fromkeys(pending, end)
            # Written before the events are deleted: after a kill in between, what was made from them is not used again,
            # and the next update deletes them.
            write_json(self.path / _EPOCH, {"times": before["times"] + 1, "until": until, "pending": pending})
            self.finish_forgetting()
        return count

    def finish_forgetting(self) -> None:
        """Delete the events that :meth:`forget` recorded, unless it did so itself before it was killed."""
        record = self._forgotten
        if pending := {*record.pop("pending", [])}:
            key = self._key(create=False)
            self._keep(lambda event: pending.isdisjoint((event.session, _hashed(question_key(event.question), key))))
            write_json(self.path / _EPOCH, record)

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("[0-9]*.jsonl"))

    def _write(self, lines: Iterable[str], has_lists: bool) -> None:
        files = self._files()
        number = int(files[-1].name.split("-")[0]) + 1 if files else 1
        name = f"{number:06d}-{'lists' if has_lists else 'clicks'}.jsonl"
        _write_lines(self.path / name, lines)

    def _keep(self, is_kept: Callable[[Event], bool]) -> None:
        """Write the files again, without some events."""
        for file in self._files():
            lines = [(line, is_kept(_event(line, file, number))) for number, line in _lines(file)]
            if all(kept for _, kept in lines):
                continue
            if any(kept for _, kept in lines):
                _write_lines(file, (line for line, kept in lines if kept))
            else:
                file.unlink()
                sync_directory(self.path)

    def _key(self, create: bool) -> bytes:
        """The key of the hashes. Where there is none: a new one with ``create``, otherwise zeros."""
        file = self.path / _KEY
        if not file.is_file():
            if not create:
                return bytes(32)
            make_directory(self.path)
            with whole_file(file) as partial:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="ascii") as opened:
                    opened.write(secrets.token_hex(32))
        try:
            return bytes.fromhex(file.read_text(encoding="ascii"))
        except ValueError:
            raise ArtifactError(f"{file}: damaged; wanted the key of the hashes. Take it from a backup.") from None


def _masked(event: Event) -> Event:
    """An event with personal data masked in its question."""
    return event._replace(question=redacted(event.question), question_id=redacted(event.question_id))


def _line(event: Event) -> str:
    """An event, with the hash of its session, as a line of the store."""
    return json.dumps(event._asdict(), ensure_ascii=False, sort_keys=True)


def _hashes(event: Event, key: bytes) -> set[str]:
    """Hashes of a log's event, by which it can be forgotten."""
    keys = {question_key(text) for text in (event.question, redacted(event.question))}
    return {_hashed(text, key) for text in (event.session, *keys) if text}


def _hashed(text: str, key: bytes) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=12).hexdigest()


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return read_lines(path, "events of the store")


def _digest(event: Event) -> bytes:
    return hashlib.blake2b(_line(event).encode(), digest_size=16).digest()


def _event(line: str, path: Path, number: int) -> Event:
    try:
        values: dict[str, Any] = json.loads(line)
        return Event(**{**values, "shown": tuple(Shown(*passage) for passage in values["shown"])})
    except (ValueError, TypeError, KeyError):
        raise ArtifactError(
            f"{path}:{number}: this line is damaged. Delete it, or give the logs again that it came from."
        ) from None
