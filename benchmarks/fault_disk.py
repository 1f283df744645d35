"""A model of the disk after a power loss: what was synced is there, and any part of the rest.

Each directory has the names of some moment between its last fsync and the crash; every directory has a different
moment. A rename within a directory has happened or not. A file has the bytes of its last fsync or all that were
written since, or only some of the new pages (the others are old or zero), or it is empty or cut off. So a name can be
on the disk before the bytes of its file.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fault_calls import watch

_PAGE = 4096

Names = dict[str, int]  # inode number behind each name of a directory


class _Directory(NamedTuple):
    """Versions of a directory's names since its last fsync; the first one is on the disk."""

    versions: list[Names]


class _File(NamedTuple):
    """A file, held open so that no other file gets its inode number."""

    descriptor: int
    synced: list[bytes]  # one value: the bytes of its last fsync


class Disk:
    """Follows what this process writes below a directory.

    Args:
        root: The directory.
        durable: Other files and directories that are already on the disk.
    """

    def __init__(self, root: Path, durable: Iterable[Path] = ()) -> None:
        self.root = root
        self._directories: dict[int, _Directory] = {}
        self._files: dict[int, _File] = {}
        self._held: list[int] = []  # open directories, so that no other gets their inode number
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for place in (root, *durable):
            for path in (place, *place.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    self._file(path, path.read_bytes())
        self._look(root)
        for directory in self._directories.values():
            del directory.versions[:-1]

    def follow(self, at: Callable[[int, str], None]) -> None:
        """Watch this process; ``at`` is called before each call, with its number and its name."""
        count = 0

        def before(name: str, words: tuple[Any, ...]) -> None:
            nonlocal count
            self._look(self.root)
            at(count, name)
            count += 1

        def after(name: str, words: tuple[Any, ...]) -> None:
            if name == "fsync":
                self._synced(words[0])

        watch(before, after)

    def crash(self, image: Path, random: Random) -> None:
        """Make the directory ``image`` as the disk may hold it if the power fails now."""
        self._look(self.root)
        self._make(self.root.stat().st_ino, image, random)

    def _look(self, directory: Path) -> None:
        """Record the names that changed in a directory and below."""
        number = directory.stat().st_ino
        known = self._directories.get(number)
        if known is None:
            self._held.append(os.open(directory, os.O_RDONLY))
            known = self._directories[number] = _Directory([{}])
        names: Names = {}
        for entry in os.scandir(directory):
            names[entry.name] = entry.inode()
            if entry.is_dir(follow_symlinks=False):
                self._look(Path(entry.path))
            elif entry.inode() not in self._files:
                self._file(Path(entry.path), b"")
        if names != known.versions[-1]:
            known.versions.append(names)

    def _file(self, path: Path, synced: bytes) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        number = os.fstat(descriptor).st_ino
        if number in self._files:
            os.close(descriptor)
            return
        self._files[number] = _File(descriptor, [synced])

    def _synced(self, descriptor: int) -> None:
        number = os.fstat(descriptor).st_ino
        self._look(self.root)
        if (directory := self._directories.get(number)) is not None:
            del directory.versions[:-1]
        elif (file := self._files.get(number)) is not None:
            file.synced[0] = _bytes(file.descriptor)

    def _make(self, number: int, place: Path, random: Random) -> None:
        directory = self._directories.get(number)
        if directory is None:
            file = self._files[number]
            place.write_bytes(_left(file.synced[0], _bytes(file.descriptor), random))
            return
        place.mkdir()
        for name, inner in random.choice(directory.versions).items():
            self._make(inner, place / name, random)


def _bytes(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _left(synced: bytes, written: bytes, random: Random) -> bytes:
    """The bytes of a file that a crash leaves."""
    if synced == written:
        return written
    how = random.choice(("synced", "written", "empty", "cut", "zero", "pages"))
    if how in ("synced", "written"):
        return synced if how == "synced" else written
    if how == "empty" and not synced:
        return b""
    if how == "cut":
        least = min(len(synced), len(written)) if written.startswith(synced) else 0
        return written[: random.randint(least, len(written))]
    pages = []
    for start in range(0, len(written), _PAGE):
        old, new = synced[start : start + _PAGE], written[start : start + _PAGE]
        kept = old.ljust(len(new), b"\0")[: len(new)]  # what was never written is zero
        pages.append(new if how == "pages" and random.random() < 0.5 else kept)
    return b"".join(pages)
