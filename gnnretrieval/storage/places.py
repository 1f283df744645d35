"""Where an artifact is on disk, and how a new version replaces an old one.

Three hidden names exist beside ``name`` for a time: ``.name.partial`` (half made, or whole and not yet in place),
``.name.lock`` (a process is writing the artifact) and ``.name.old`` (the version to be deleted). If the system can
exchange two names, ``name`` exists at every moment. Otherwise two renames leave a gap, which :func:`recover` closes
after a kill.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.durable import exchange, sync_directory
from gnnretrieval.storage.locks import beside, lock_files, locked

META = "meta.json"
CLAIM = "claim.json"  # in scratch: what a half-made artifact is made from
_GAP = 1.0  # seconds that a reader waits for a writer between its two renames


def partial_path(path: Path) -> Path:
    """Directory in which the artifact for ``path`` is written until it is whole."""
    return beside(path, "partial")


def scratch(directory: Path) -> Path:
    """Directory for what a half-made artifact needs only to resume; deleted when the artifact is whole."""
    return directory / "scratch"


def is_whole(directory: Path) -> bool:
    """Whether a directory is a whole artifact: its ``meta.json`` is written last and deleted first."""
    return (directory / META).is_file()


def put_in_place(partial: Path, path: Path) -> None:
    """Replace what is at ``path`` with ``partial``, which must be whole and synced to the disk."""
    parent, old = path.absolute().parent, beside(path, "old")
    if not path.exists() or not any(path.iterdir()):
        partial.rename(path)
        sync_directory(parent)
        return
    discard(old)
    partial.rename(old)  # from here on, the version named old is the one to delete, whichever it is
    if not exchange(old, path):
        old.rename(partial)
        path.rename(old)
        partial.rename(path)
    sync_directory(parent)
    discard(old)


def discard(directory: Path) -> None:
    """Delete a directory; after a kill halfway, the remains are neither opened as whole nor resumed."""
    if not directory.exists():
        return
    for file in (directory / META, scratch(directory) / CLAIM):
        if file.is_file():
            file.unlink()
            sync_directory(file.parent)
    shutil.rmtree(directory)


def recover(path: Path) -> None:
    """Close the gap that two renames left, and delete the old version. The caller holds the lock."""
    old, partial = beside(path, "old"), partial_path(path)
    if not path.exists():
        whole = next((place for place in (partial, old) if old.is_dir() and is_whole(place)), None)
        if whole is not None:
            whole.rename(path)
            sync_directory(path.absolute().parent)
    discard(old)


def settle(path: Path, kind: str) -> None:
    """Repair what a killed command left at ``path``; a process that is writing there has done so itself."""
    if any(place.exists() for place in (beside(path, "old"), *lock_files(path))):
        with suppress(ArtifactError), locked(path, kind):
            recover(path)


def find(path: Path, kind: str) -> Path:
    """Where the artifact for ``path`` is: at ``path``, or at a hidden name beside it if a gap cannot be closed here."""
    old, until = beside(path, "old"), time.monotonic() + _GAP
    while not path.exists() and old.is_dir():
        with suppress(OSError):  # the directory may be read-only
            settle(path, kind)
        if time.monotonic() > until or not os.access(old.parent, os.W_OK):
            return next((place for place in (path, partial_path(path), old) if is_whole(place)), path)
        time.sleep(0.01)
    return path
