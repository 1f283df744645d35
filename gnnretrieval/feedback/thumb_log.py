"""An event log to which a running server adds thumbs, a line each; several processes may share the file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from gnnretrieval.errors import InputError
from gnnretrieval.storage.durable import sync_directory

Thumb = Literal["up", "down", "withdrawn"]
_ENDING = ".jsonl"
_LONGEST = 2**20  # bytes; a line is at most as long as a request's body and its last fields


class ThumbLog:
    """A log in the format that :func:`gnnretrieval.feedback.import_feedback` reads without further options.

    A line is on the disk, whole, before :meth:`add` returns. A half line after a crash is cut off before the next line
    is written.

    Args:
        path: The file, which need not exist yet. Only its owner can read a new file, as it has people's questions.

    Raises:
        InputError: The name does not end in ``.jsonl``, or the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.suffix != _ENDING:
            raise InputError(f"feedback is written as JSON lines: give a file whose name ends in {_ENDING}.", self.path)
        try:
            self._append(b"")
        except OSError as error:
            raise InputError(
                f"feedback cannot be written here ({error.strerror}): give a file in a directory that exists and that "
                "you may write to.",
                self.path,
            ) from None

    def add(
        self, question: str, shown: Sequence[str], passage: str, thumb: Thumb, session: str, version: str
    ) -> datetime:
        """Add a thumb.

        Args:
            question: The question's text.
            shown: Ids of the passages that were shown, in their order.
            passage: Id of the passage that the thumb is about.
            thumb: What was given; ``withdrawn`` takes back the session's earlier thumb for this question and passage.
            session: A random id; one session has one vote for a question and passage, its last one.
            version: The index that ranked.

        Returns:
            The time of the line, in UTC.

        Raises:
            OSError: It could not be written, and nothing of it is left in the file.
        """
        now = datetime.now(UTC)
        event = {
            "time": now.isoformat(timespec="microseconds"),
            "session": session,
            "query": question,
            "shown": list(shown),
            "thumbs": {passage: thumb},
            "version": version,
        }
        self._append(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        return now

    def _append(self, line: bytes) -> None:
        """Append in one write, under a lock against other processes."""
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            end = _mended(descriptor)
            try:
                _write(descriptor, line)
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):  # what is left is mended by the next append
                    os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(self.path.parent)


def _write(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) < len(line):  # the disk became full
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _mended(descriptor: int) -> int:
    """End the last line, or cut it off where a crash left half of it; returns the file's length in bytes."""
    end = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _LONGEST, max(0, end - _LONGEST))
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last:
        return end
    if len(last) == _LONGEST or _is_json(last):  # not a half line of this log: a file from elsewhere
        _write(descriptor, b"\n")
        return end + 1
    os.ftruncate(descriptor, end - len(last))
    return end - len(last)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
