"""Artifacts: the directories that the commands hand to one another.

An artifact is a directory with a ``meta.json`` (kind and format version, what it was made from with content hashes,
configuration, library versions, seed, git revision, sha256 of its files) beside arrays in ``.npy``, ids and text in
SQLite and weights in safetensors. It is written as ``.<name>.partial`` beside its place and renamed when whole, so a
half-made one can never be opened; running the same command again resumes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gnnretrieval.errors import ArtifactError

FORMAT_VERSION = 1
RECORDED_PACKAGES = (
    "gnnretrieval",
    "torch",
    "transformers",
    "sentence-transformers",
    "faiss-cpu",
    "bm25s",
    "ir-measures",
    "numpy",
    "scipy",
)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: Any) -> str:
    """Hexadecimal sha256 of ``value`` written as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` in one step: a reader sees the old file or the new one, never half of one."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def library_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a result."""
    versions = {}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def git_revision() -> str | None:
    """Commit of the checkout this package runs from (``+changes`` when it is not clean), or None outside one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


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
        """sha256 over the sha256 of every file: two artifacts with this equal hold the same bytes."""
        value: str = self.meta["hash"]
        return value

    @property
    def config(self) -> dict[str, Any]:
        """The configuration it was made with."""
        value: dict[str, Any] = self.meta["config"]
        return value

    def made_from(self, name: str) -> Path:
        """Where the input called ``name`` lay when this was made.

        Raises:
            ArtifactError: it is not recorded.
        """
        try:
            return Path(os.path.normpath(self.path.resolve() / self.meta["made_from"][name]))
        except KeyError:
            raise ArtifactError(f"{self.path}: it does not say where its {name} lies; name it.") from None


def relative_to(artifact: str | Path, other: str | Path) -> str:
    """``other`` as seen from the directory ``artifact``, so that both can be moved together."""
    return os.path.relpath(Path(other).resolve(), Path(artifact).resolve())


def partial_path(path: Path) -> Path:
    """Where the artifact for ``path`` is written until it is whole."""
    return path.with_name(f".{path.name}.partial")


def open_artifact(path: str | Path, kind: str) -> Artifact:
    """Open the artifact at ``path``.

    Raises:
        ArtifactError: there is none, it is half made, it is of another kind, or of a newer format.
    """
    path = Path(path)
    meta_path = path / "meta.json"
    if not meta_path.is_file():
        if partial_path(path).exists():
            raise ArtifactError(f"{path}: this {kind} is half made. Run the command that makes it again: it goes on.")
        if not path.exists():
            raise ArtifactError(f"{path}: no such directory; a {kind} was expected there.")
        raise ArtifactError(f"{path}: this is no {kind}: it has no meta.json. Was it made by gnnretrieval?")
    try:
        meta = json.loads(meta_path.read_text(encoding="utf-8"))
        found, version = meta["kind"], meta["format_version"]
        meta["hash"], meta["files"], meta["config"], meta["inputs"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{meta_path}: not the meta.json of an artifact ({error}). Make the {kind} again."
        ) from error
    if found != kind:
        raise ArtifactError(f"{path}: this is a {found}, and a {kind} is wanted here.")
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{path}: format version {version}; this gnnretrieval reads up to {FORMAT_VERSION}. Upgrade it."
        )
    missing = [name for name in meta["files"] if not (path / name).is_file()]
    if missing:
        raise ArtifactError(f"{path}: the {kind} lacks its file {missing[0]}. Delete the directory and make it again.")
    return Artifact(path, meta)


def is_made(path: Path, kind: str, fingerprint: str) -> bool:
    """Whether ``path`` holds a finished artifact of this kind made from these very inputs and settings."""
    if not (path / "meta.json").is_file():
        return False
    return bool(open_artifact(path, kind).meta.get("fingerprint") == fingerprint)


def what_changed(path: Path, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Say in words how the artifact at ``path`` differs from what these inputs and settings would make."""
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    changed = [f"its {name} changed" for name, value in inputs.items() if meta["inputs"].get(name) != value]
    old = meta["config"]
    changed += [
        f"{key} was {old.get(key)!r} and is now {config.get(key)!r}"
        for key in sorted({*old, *config})
        if old.get(key) != config.get(key)
    ]
    return "; ".join(changed) or "its format changed"


def fingerprint(kind: str, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Hash of everything that decides an artifact's content."""
    return sha256_of_json({"kind": kind, "version": FORMAT_VERSION, "inputs": dict(inputs), "config": dict(config)})


@contextmanager
def _locked(path: Path, kind: str) -> Iterator[None]:
    """Hold the lock of ``path`` so that two processes do not write one artifact."""
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArtifactError(f"{path}: another process is making this {kind}. Wait for it, or stop it.") from None
        yield
        lock.unlink(missing_ok=True)


def _replace(partial: Path, path: Path) -> None:
    """Put a whole ``partial`` in place of ``path``. Killed in between, the next run finds the whole partial."""
    if path.exists():
        old = path.with_name(f".{path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
        partial.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    else:
        partial.rename(path)


def make_artifact(
    path: str | Path,
    kind: str,
    *,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    write: Callable[[Path], Mapping[str, Any] | None],
    seed: int | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Artifact:
    """Make the artifact at ``path``, or reuse the one there, or go on with a half-made one.

    Args:
        path: Where it goes.
        kind: ``"features"``, ``"graph"``, …
        inputs: Content hash by name of what it is made from.
        config: Every setting that decides its content (JSON values).
        write: Called with the partial directory; writes the files, and returns entries to add to ``meta.json``
            (figures; they do not enter the fingerprint). When the directory already holds files they are of an
            interrupted run with this same fingerprint: go on from them.
        seed: Recorded where randomness took part.
        overwrite: Replace an artifact of this kind that was made from other inputs; without it that is an error.
        say: Receives one line when the artifact is reused, resumed or replaced.

    Raises:
        ArtifactError: ``path`` holds something else, or is being written by another process.
    """
    path = Path(path)
    print_of_inputs = fingerprint(kind, inputs, config)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        if is_made(path, kind, print_of_inputs):
            say(f"{path}: already made from these inputs, reused")
            return open_artifact(path, kind)
        open_artifact(path, kind)  # refuses to touch what is no artifact of this kind
        change = what_changed(path, inputs, config)
        if not overwrite:
            raise ArtifactError(f"{path}: a {kind} is there already, and {change}. Pass --overwrite or another path.")
        say(f"{path}: made again, since {change}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, kind):
        partial = partial_path(path)
        claim = partial / "fingerprint"
        if partial.exists():
            if claim.is_file() and claim.read_text() == print_of_inputs:
                say(f"{path}: half made before, going on")
            elif not (partial / "meta.json").is_file() or not is_made(partial, kind, print_of_inputs):
                shutil.rmtree(partial)
        partial.mkdir(exist_ok=True)
        if not (partial / "meta.json").is_file():
            claim.write_text(print_of_inputs)
            figures = write(partial) or {}
            claim.unlink()
            _write_meta(partial, kind, inputs, config, print_of_inputs, seed, figures)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        _replace(partial, path)
    return open_artifact(path, kind)


def _write_meta(
    directory: Path,
    kind: str,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    print_of_inputs: str,
    seed: int | None,
    figures: Mapping[str, Any],
) -> None:
    files = {
        file.relative_to(directory).as_posix(): sha256_of_file(file)
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }
    write_json(
        directory / "meta.json",
        {
            "kind": kind,
            "format_version": FORMAT_VERSION,
            "fingerprint": print_of_inputs,
            "hash": sha256_of_json(files),
            "inputs": dict(inputs),
            "config": dict(config),
            **figures,
            "seed": seed,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": library_versions(),
            "git_revision": git_revision(),
            "files": files,
        },
    )
