"""Making an artifact: written under a hidden name, renamed when whole, resumed if interrupted, reused if unchanged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact, open_artifact, version_of, with_article
from gnnretrieval.storage.durable import make_directory, sync_directory, sync_tree
from gnnretrieval.storage.locks import locked
from gnnretrieval.storage.places import (
    CLAIM,
    META,
    discard,
    is_whole,
    partial_path,
    put_in_place,
    recover,
    scratch,
    settle,
)
from gnnretrieval.storage.provenance import (
    CHECKSUM,
    checksum_of,
    git_revision,
    library_versions,
    sha256_of_file,
    sha256_of_json,
    write_json,
)

_WRITTEN = "figures"  # in a half-made artifact's scratch: all its files are written; holds entries of meta.json
_REFUSED = "refused"  # there too: its run ended in one of our errors


def is_made(path: Path, kind: str, fingerprint: str) -> bool:
    """Whether ``path`` holds a finished artifact of this kind, made from exactly these inputs and settings."""
    if not is_whole(path):
        return False
    try:
        return bool(open_artifact(path, kind, any_version=True).meta.get("fingerprint") == fingerprint)
    except ArtifactError:
        return False


def what_changed(path: Path, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """How the artifact at ``path`` differs from what these inputs and settings would make, in words."""
    return _difference(json.loads((path / META).read_text(encoding="utf-8")), inputs, config)


def _difference(meta: Mapping[str, Any], inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    before = meta["inputs"]
    changed = [
        f"it had no {name} before" if name not in before else f"its {name} changed"
        for name, value in inputs.items()
        if before.get(name) != value
    ]
    changed += [f"it has no {name} now" for name in before if name not in inputs]
    old = meta["config"]
    changed += [
        f"{key} was {old.get(key)!r} and is now {config.get(key)!r}"
        for key in sorted({*old, *config})
        if old.get(key) != config.get(key)
    ]
    if not changed and meta.get("updates"):
        return "it was updated since it was made"
    return "; ".join(changed) or "its format changed"


def fingerprint(kind: str, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Hash of everything that determines an artifact's content."""
    return sha256_of_json({"kind": kind, "version": version_of(kind), "inputs": dict(inputs), "config": dict(config)})


def record_progress(directory: Path, manifest: Path, value: Any) -> None:
    """Sync a half-made artifact to the disk, then record in ``manifest`` how far it is, for a later run to resume."""
    sync_tree(directory)
    write_json(manifest, value)


def make_artifact(
    path: str | Path,
    kind: str,
    *,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    write: Callable[[Path], Mapping[str, Any] | None],
    seed: int | None = None,
    overwrite: bool = False,
    stale: Callable[[Artifact], str | None] | None = None,
) -> Artifact:
    """Make the artifact at ``path``, reuse the one there, or resume a half-made one.

    Args:
        path: Directory of the artifact.
        kind: ``"features"``, ``"graph"``, …
        inputs: Content hashes of what it is made from, by name.
        config: Every setting that determines its content (JSON values).
        write: Called with the partial directory. It writes the files and returns entries to add to ``meta.json``, which
            do not enter the fingerprint. Files already in the directory are from an interrupted run with the same
            fingerprint; ``write`` resumes from them. What it needs only to resume belongs in
            :func:`~gnnretrieval.storage.places.scratch`.
        seed: Recorded if randomness is involved.
        overwrite: Replace an artifact of this kind that was made, or half made, from other inputs.
        stale: Why the artifact there is made again although its inputs and settings are the same; None, or returning
            None: it is reused.

    Raises:
        ArtifactError: ``path`` cannot be a new directory, holds another kind of artifact or files of the user, or is
            being written by another process. Without ``overwrite`` also: it holds an artifact made from other inputs,
            or an interrupted run left one half made.
    """
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()
    if not path.absolute().name:
        raise ArtifactError(f"{path}: this is no place for {with_article(kind)}. Name a new directory.")
    print_of_inputs = fingerprint(kind, inputs, config)
    settle(path, kind)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        made = _already_there(path, kind, inputs, config, print_of_inputs, overwrite, stale)
        if made is not None:
            return made
    try:
        make_directory(path.parent)
    except (FileExistsError, NotADirectoryError):
        raise ArtifactError(f"{path}: a part of this path is a file. Name another place.") from None
    with locked(path, kind) as require_lock:
        recover(path)
        partial = partial_path(path)
        goes_on = False
        if partial.exists():
            if _claimed(partial).get("fingerprint") == print_of_inputs:
                say(f"{path}: half made before, going on")
                goes_on = True
            elif not is_made(partial, kind, print_of_inputs):
                _give_up(path, partial, kind, inputs, config, overwrite)
        if not is_whole(partial):
            if not goes_on:
                scratch(partial).mkdir(parents=True, exist_ok=True)
                claim = json.dumps({"fingerprint": print_of_inputs, "inputs": dict(inputs), "config": dict(config)})
                (scratch(partial) / CLAIM).write_text(claim)  # not synced: without it, the run begins again
            finish(partial, kind, inputs, config, print_of_inputs, seed, _figures(partial, write, goes_on))
        tidy(partial)
        require_lock()
        put_in_place(partial, path)
    return open_artifact(path, kind)


def _figures(partial: Path, write: Callable[[Path], Mapping[str, Any] | None], goes_on: bool) -> dict[str, Any]:
    """Write the files into ``partial``, unless an earlier run wrote all; returns the entries for ``meta.json``."""
    claim, written, refused = (scratch(partial) / name for name in (CLAIM, _WRITTEN, _REFUSED))
    refused.unlink(missing_ok=True)
    if not written.is_file():  # otherwise a run was killed while it hashed the files
        begun = time.monotonic()
        try:
            figures = dict(write(partial) or {})
        except GnnRetrievalError:
            if {file for file in partial.rglob("*") if file.is_file()} == {claim}:
                discard(partial)  # refused before anything was written
            elif refused.parent.is_dir():
                refused.touch()
            raise
        # The time that an interrupted run took before is not known.
        seconds = None if goes_on else round(time.monotonic() - begun, 1)
        record_progress(partial, written, {**figures, "seconds": seconds})
    recorded: dict[str, Any] = json.loads(written.read_text("utf-8"))
    return recorded


def _give_up(
    path: Path,
    partial: Path,
    kind: str,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    overwrite: bool,
) -> None:
    """Discard an artifact half made from other inputs; if a run was interrupted, only with ``overwrite``.

    Raises:
        ArtifactError: An interrupted run left it, and ``overwrite`` is False.
    """
    claim = _claimed(partial)
    change = _difference(claim, inputs, config) if claim else "it was another one"
    if not overwrite and claim and not (scratch(partial) / _REFUSED).is_file():
        raise ArtifactError(
            f"{path}: an interrupted run left {with_article(kind)} half made, and {change}. "
            "Run the command that began it to go on, or pass --overwrite to begin again."
        )
    say(f"{path}: begun again, since it was half made and {change}")
    discard(partial)


def _claimed(partial: Path) -> dict[str, Any]:
    """What a half-made artifact is made from; empty if unknown."""
    with suppress(OSError, ValueError):
        claim = json.loads((scratch(partial) / CLAIM).read_text(encoding="utf-8"))
        if isinstance(claim, dict) and {"inputs", "config"} <= claim.keys():
            return claim
    return {}


def _already_there(
    path: Path,
    kind: str,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    print_of_inputs: str,
    overwrite: bool,
    stale: Callable[[Artifact], str | None] | None,
) -> Artifact | None:
    """The artifact at ``path`` if it is the one wanted; None if it may be replaced.

    Raises:
        ArtifactError: It may not be replaced.
    """
    wanted = with_article(kind)
    if not path.is_dir():
        raise ArtifactError(f"{path}: this is a file, and {wanted} would be made here. Name a new directory.")
    if not is_whole(path):
        raise ArtifactError(f"{path}: it holds other files and is left as it is. Name a new directory.")
    existing = open_artifact(path, kind, any_version=True)  # refuses to touch another kind
    if existing.meta.get("fingerprint") == print_of_inputs:
        change = (stale and stale(existing)) or ""
        if not change:
            say(f"{path}: already made from these inputs, reused")
            return existing
    else:
        change = what_changed(path, inputs, config)
    if not overwrite:
        raise ArtifactError(f"{path}: {wanted} is there already, and {change}. Pass --overwrite or another path.")
    ours = {META, *existing.meta["files"]}
    others = [
        file for file in sorted(path.rglob("*")) if file.is_file() and file.relative_to(path).as_posix() not in ours
    ]
    if others:
        raise ArtifactError(
            f"{path}: it would be made again, and {others[0].name} in it is not its own. Move that first."
        )
    say(f"{path}: made again, since {change}")
    return None


def finish(
    directory: Path,
    kind: str,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    print_of_inputs: str,
    seed: int | None,
    figures: Mapping[str, Any],
    known: Mapping[str, str] | None = None,
) -> None:
    """Write the ``meta.json`` that makes ``directory`` a whole artifact. Its files must be on the disk already.

    Args:
        directory: Directory with the artifact's files.
        kind: Its kind.
        inputs: As :func:`make_artifact`.
        config: As :func:`make_artifact`.
        print_of_inputs: Its fingerprint.
        seed: As :func:`make_artifact`.
        figures: Further entries.
        known: sha256 by name, of files that need not be read again.
    """
    names = sorted(
        file.relative_to(directory).as_posix()
        for file in directory.rglob("*")
        if file.is_file()
        and file != directory / META
        and not file.is_relative_to(scratch(directory))
        and not file.name.startswith(".")
    )
    files = {name: (known or {}).get(name) or sha256_of_file(directory / name) for name in names}
    meta = {
        **figures,
        "kind": kind,
        "format_version": version_of(kind),
        "fingerprint": print_of_inputs,
        "hash": sha256_of_json(files),
        "inputs": dict(inputs),
        "config": dict(config),
        "seed": seed,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "git_revision": git_revision(),
        "files": files,
        "sizes": {name: (directory / name).stat().st_size for name in files},
    }
    write_json(directory / META, {**meta, CHECKSUM: checksum_of(meta)})


def tidy(directory: Path) -> None:
    """Delete what a whole artifact no longer needs: its scratch directory, and unfinished files of killed runs."""
    shutil.rmtree(scratch(directory), ignore_errors=True)
    for left in directory.rglob(".*"):
        left.unlink()
        sync_directory(left.parent)
    sync_directory(directory)
