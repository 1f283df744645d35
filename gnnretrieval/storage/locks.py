"""One writer at a time: a lock of the operating system, or a lease where the file system has no locks.

A lease is a file that names its holder. The holder renews the file's modification time every few seconds. A lease is
stale when its process no longer runs on this machine, or when its time is more than a minute old.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gnnretrieval.errors import ArtifactError
from gnnretrieval.progress import say

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
HEARTBEAT, STALE = 10.0, 60.0  # seconds between two signs of life; seconds without one that make a lease stale

Require = Callable[[], None]


def beside(path: Path, what: str) -> Path:
    """The hidden path next to ``path`` for its ``partial``, ``lock``, ``lease`` or ``old``."""
    place = Path(os.path.normpath(path.absolute()))  # "." has no name
    return place.with_name(f".{place.name}.{what}")


def lock_files(path: Path) -> tuple[Path, Path]:
    """Paths of the lock and the lease of ``path``."""
    return beside(path, "lock"), beside(path, "lease")


@contextmanager
def locked(path: Path, kind: str) -> Iterator[Require]:
    """Hold the lock of ``path``, so that only one process writes its artifact.

    Args:
        path: Directory of the artifact.
        kind: Its kind, for errors.

    Yields:
        A function to call before the last step. It raises an :class:`ArtifactError` if the lock was lost meanwhile.

    Raises:
        ArtifactError: Another process holds the lock.
    """
    lock, lease = lock_files(path)
    while True:
        with lock.open("w") as file:
            try:
                has_locks = _lock(file)
            except BlockingIOError:
                raise _held(path, kind) from None
            if not _is_at(file.fileno(), lock):
                continue  # its holder deleted the file in between
            try:
                if has_locks:
                    _require_free(path, lease, kind)  # a machine that sees no locks here may hold a lease
                    yield lambda: None
                    return
                lock.unlink(missing_ok=True)
                say(f"{path}: this file system has no locks; a lease ({lease.name}) keeps other processes away instead")
                with _leased(path, lease, kind) as require:
                    yield require
                return
            finally:
                lock.unlink(missing_ok=True)


def _held(path: Path, kind: str, by: str = "another process") -> ArtifactError:
    return ArtifactError(f"{path}: {by} is making this {kind}. Wait for it, or stop it.")


def _lock(file: IO[Any]) -> bool:
    """Lock a file; False where the file system cannot.

    Raises:
        BlockingIOError: Another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise OSError(error.errno, error.strerror, file.name) from None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def _leased(path: Path, lease: Path, kind: str) -> Iterator[Require]:
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex}
    while not _create(lease, mine):
        _require_free(path, lease, kind)
    done = threading.Event()

    def require() -> None:
        if (held := _read(lease)) is None or held[0] != mine:
            raise ArtifactError(
                f"{path}: this process gave no sign of life for {STALE:.0f} seconds, and another took its place. "
                "Run the command again."
            )

    def live() -> None:
        while not done.wait(HEARTBEAT):
            with suppress(OSError, ArtifactError):
                require()
                os.utime(lease, (time.time(), time.time()))

    thread = threading.Thread(target=live, name="lease", daemon=True)
    thread.start()
    try:
        yield require
    finally:
        done.set()
        thread.join()
        if (held := _read(lease)) is not None and held[0] == mine:
            lease.unlink(missing_ok=True)


def _require_free(path: Path, lease: Path, kind: str) -> None:
    """Check that no other process holds the lease, and delete a stale one.

    Raises:
        ArtifactError: Another process holds it.
    """
    held = _read(lease)
    if held is None:
        return
    holder, seen = held
    if not _is_stale(holder, seen):
        known = {"pid", "host"} <= holder.keys()
        raise _held(path, kind, f"process {holder['pid']} on {holder['host']}" if known else "another process")
    _take_away(lease, holder)


def _create(lease: Path, mine: dict[str, Any]) -> bool:
    try:
        with lease.open("x", encoding="utf-8") as file:
            json.dump(mine, file)
        os.utime(lease, (time.time(), time.time()))  # by this machine's clock, not the file server's
    except FileExistsError:
        return False
    return True


def _read(lease: Path) -> tuple[dict[str, Any], float] | None:
    """Holder of a lease and the time of its last sign of life; None if there is no lease."""
    try:
        text, seen = lease.read_text(encoding="utf-8"), lease.stat().st_mtime
    except FileNotFoundError:
        return None
    try:
        holder = json.loads(text)
    except ValueError:  # it is being written
        holder = {}
    return (holder if isinstance(holder, dict) else {}), seen


def _is_stale(holder: dict[str, Any], seen: float) -> bool:
    if holder.get("host") == socket.gethostname() and isinstance(holder.get("pid"), int):
        try:
            os.kill(holder["pid"], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return time.time() - seen > STALE


def _take_away(lease: Path, holder: dict[str, Any]) -> None:
    """Delete a stale lease; if another process has created one meanwhile, put that one back."""
    aside = lease.with_name(f"{lease.name}-{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        lease.rename(aside)
        if (held := _read(aside)) is not None and held[0] != holder and not lease.exists():
            aside.rename(lease)
        aside.unlink(missing_ok=True)
