"""Where an artifact lies, and how a new version takes the place of an old one.

Beside ``name`` lie, for a time, ``.name.partial`` (half made, or whole and not yet in place), ``.name.lock`` (someone
writes it) and ``.name.old`` (the version that is on its way out). Where the system can exchange two names, ``name`` is
there at every moment. Elsewhere two renames leave a gap; :func:`recover` closes it after a kill.
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
_GAP = 1.0  # seconds that a reader waits for a writer that is between its two renames


def partial_path(path: Path) -> Path:
    """Where the artifact for ``path`` is written until it is whole."""
    return beside(path, "partial")


def scratch(directory: Path) -> Path:
    """Where a half-made artifact keeps what it needs only to go on; gone when the artifact is whole."""
    return directory / "scratch"


def is_whole(directory: Path) -> bool:
    """Whether a directory is a whole artifact: ``meta.json`` is written last, and taken away first."""
    return (directory / META).is_file()


def put_in_place(partial: Path, path: Path) -> None:
    """Put a whole ``partial``, all of it on the disk, in place of what is at ``path``."""
    parent, old = path.absolute().parent, beside(path, "old")
    if not path.exists() or not any(path.iterdir()):
        partial.rename(path)
        sync_directory(parent)
        return
    discard(old)
    partial.rename(old)  # from here on what is called old is on its way out, whichever version that is
    if not exchange(old, path):
        old.rename(partial)
        path.rename(old)
        partial.rename(path)
    sync_directory(parent)
    discard(old)


def discard(directory: Path) -> None:
    """Delete a directory; killed on the way, what is left is neither whole nor gone on from."""
    if not directory.exists():
        return
    for file in (directory / META, scratch(directory) / CLAIM):
        if file.is_file():
            file.unlink()
            sync_directory(file.parent)
    shutil.rmtree(directory)


def recover(path: Path) -> None:
    """Close the gap that two renames left, and delete a version on its way out. The caller holds the lock."""
    old, partial = beside(path, "old"), partial_path(path)
    if not path.exists():
        whole = next((place for place in (partial, old) if old.is_dir() and is_whole(place)), None)
        if whole is not None:
            whole.rename(path)
            sync_directory(path.absolute().parent)
    discard(old)


def settle(path: Path, kind: str) -> None:
    """Put right what a killed command left at ``path``; where another process writes it, that one does."""
    if any(place.exists() for place in (beside(path, "old"), *lock_files(path))):
        with suppress(ArtifactError), locked(path, kind):
            recover(path)


def find(path: Path, kind: str) -> Path:
    """Where the artifact for ``path`` lies: there, unless a gap is open that cannot be closed here."""
    old, until = beside(path, "old"), time.monotonic() + _GAP
    while not path.exists() and old.is_dir():
        with suppress(OSError):  # a place that may only be read
            settle(path, kind)
        if time.monotonic() > until or not os.access(old.parent, os.W_OK):
            return next((place for place in (path, partial_path(path), old) if is_whole(place)), path)
        time.sleep(0.01)
    return path
