"""Artifacts: the directories that the commands pass to one another.

An artifact is a directory with a ``meta.json`` (kind and format version, content hashes of its inputs, configuration,
library versions, seed, git revision, sha256 of its files) beside arrays in ``.npy``, ids and text in SQLite and weights
in safetensors. It is written as ``.<name>.partial`` and renamed to ``<name>`` when all of it is on the disk, so a
half-made one can never be opened. Running the same command again resumes it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.storage.durable import make_directory, sync_directory, sync_file
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.meta import read_meta
from gnnretrieval.storage.places import META, find, partial_path

_FORMAT_VERSIONS = {"graph": 2}  # kinds whose files have changed since version 1
_TRIES = 5  # openings of an artifact that another process replaces meanwhile


def version_of(kind: str) -> int:
    """Format version of a kind of artifact."""
    return _FORMAT_VERSIONS.get(kind, 1)


class Artifact:
    """A finished artifact on disk.

    Attributes:
        path: Its directory.
        meta: Its ``meta.json``.
    """

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path = path
        self.meta = meta

    @property
    def hash(self) -> str:
        """sha256 over the names and sha256 of all files: artifacts with the same hash hold the same bytes."""
        value: str = self.meta["hash"]
        return value

    @property
    def config(self) -> dict[str, Any]:
        """The configuration it was made with."""
        value: dict[str, Any] = self.meta["config"]
        return value

    def require_recorded(self, *names: str) -> None:
        """Refuse files that ``meta.json`` does not list: without a recorded hash, their bytes could be anyone's.

        Raises:
            ArtifactError: A file is not listed.
        """
        for name in names:
            if name not in self.meta["files"]:
                raise ArtifactError(
                    f"{self.path / META}: it does not list {name}, which belongs to {with_article(self.meta['kind'])}. "
                    "Delete the directory and make it again."
                )

    def made_from(self, name: str) -> Path:
        """Path of the input called ``name``, from the recorded path relative to this artifact.

        Raises:
            ArtifactError: No path is recorded for it.
        """
        try:
            return Path(os.path.normpath(self.path.resolve() / self.meta["made_from"][name]))
        except KeyError:
            raise ArtifactError(f"{self.path}: it does not say where its {name} lies; name it.") from None


def with_article(kind: str) -> str:
    """The kind with its article: ``a graph``, ``an index``; plurals such as ``features`` take none."""
    return kind if kind.endswith("s") else f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def relative_to(artifact: str | Path, other: str | Path) -> str:
    """Path of ``other`` relative to the directory ``artifact``, so that both can be moved together."""
    return os.path.relpath(Path(other).resolve(), Path(artifact).resolve())


def share_file(source: Path, target: Path) -> None:
    """Hard-link ``source`` to ``target``, or copy it if the file system cannot: an artifact's files never change."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; an error names ``target``."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None


def open_artifact(path: str | Path, kind: str, records: tuple[str, ...] = (), *, any_version: bool = False) -> Artifact:
    """Open the artifact at ``path``, again if another process replaces it meanwhile.

    Symbolic links are resolved, so that what is opened later is of the same version.

    Args:
        path: Its directory.
        kind: The kind that it must have.
        records: Entries of ``meta.json`` that the caller needs.
        any_version: Also open an artifact of an earlier format version (to replace it).

    Raises:
        ArtifactError: There is no artifact, or it is half made, of another kind, damaged, or of another format version.
    """
    place = find(Path(path), kind)
    if (resolved := place.resolve()) != Path(os.path.normpath(place.absolute())):
        place = resolved
    for _ in range(_TRIES):
        before = signature(place / META)
        try:
            artifact = _open_at(place, kind, records, any_version)
        except (ArtifactError, FileNotFoundError):
            if signature(place / META) == before:
                raise
        else:
            if signature(place / META) == before:
                return artifact
    raise ArtifactError(f"{place}: it was replaced {_TRIES} times while it was opened. Try again.")


def signature(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced: inode, time in ns and size; None: there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _open_at(path: Path, kind: str, records: tuple[str, ...], any_version: bool) -> Artifact:
    """As :func:`open_artifact`, once."""
    meta_path = path / META
    if not meta_path.is_file():
        if partial_path(path).exists():
            raise ArtifactError(
                f"{path}: this directory holds a half-made {kind}. Run the command that makes it again: it goes on."
            )
        if not path.exists():
            raise ArtifactError(f"{path}: no such directory; it should hold {with_article(kind)}.")
        raise ArtifactError(f"{path}: this directory holds no {kind}: it has no meta.json.")
    remedy = f"Delete the directory and make the {kind} again."
    try:
        meta = read_meta(meta_path)
        recorded, version = meta["kind"], meta["format_version"]
        sizes = {name: size + 0 for name, size in meta.get("sizes", {}).items()}  # absent before version 0.2
        if recorded == kind and not any_version:
            for name in records:
                meta[name]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ArtifactError(f"{meta_path}: this file is damaged: {lacks}. {remedy}") from error
    if recorded != kind:
        raise ArtifactError(f"{path}: this directory holds {with_article(recorded)}, not {with_article(kind)}.")
    newest = version_of(kind)
    if version > newest:
        raise ArtifactError(f"{path}: format version {version}; this gnnretrieval reads up to {newest}. Upgrade it.")
    if version < newest and not any_version:
        raise ArtifactError(
            f"{path}: format version {version}, of an earlier gnnretrieval; this one reads {newest}. Make it again."
        )
    missing = [name for name in meta["files"] if not (path / name).is_file()]
    if missing:
        raise ArtifactError(f"{path}: the {kind} lacks its file {missing[0]}. {remedy}")
    for name, size in sizes.items():
        if name in meta["files"] and (actual := (path / name).stat().st_size) != size:
            raise ArtifactError(
                f"{path / name}: {actual:,} bytes long, and {size:,} were written: it was cut or changed. {remedy}"
            )
    return Artifact(path, meta)


def kind_of(path: str | Path) -> str | None:
    """The kind recorded in the artifact at ``path``; None if there is no artifact."""
    try:
        meta = read_json(find(Path(path), "artifact") / META, "meta.json of an artifact")
    except InputError:
        return None
    kind = meta.get("kind") if isinstance(meta, dict) and "format_version" in meta else None
    return kind if isinstance(kind, str) and kind else None


@contextmanager
def whole_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary name to write to; it is synced and renamed to ``path`` at the end, or deleted after an error.

    Args:
        path: The file.
        shared: Several processes may write the file at the same time: the temporary name is this call's alone.

    Raises:
        InputError: A part of the path is a file.
    """
    try:
        make_directory(path.parent)
    except (FileExistsError, NotADirectoryError):
        raise InputError("a part of this path is a file. Name another place.", path) from None
    partial = path.with_name(f".{path.name}.{f'{uuid.uuid4().hex}.' if shared else ''}partial")
    try:
        yield partial
        sync_file(partial)
        partial.replace(path)
        sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)
