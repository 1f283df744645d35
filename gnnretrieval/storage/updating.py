"""Updating an artifact in one step: a new version is made beside it and shares every file that does not change.

The new version starts as hard links to the old version's files. A file that changes is written again
(:func:`rewrite`), never through its link, so the old version stays whole until the new one replaces it. After a kill at
any moment, one of them is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.progress import say
from gnnretrieval.storage.array_checks import require_rows
from gnnretrieval.storage.arrays import damaged, load_array, save_array
from gnnretrieval.storage.artifacts import Artifact, copy_file, open_artifact, share_file
from gnnretrieval.storage.durable import sync_tree
from gnnretrieval.storage.locks import locked
from gnnretrieval.storage.making import fingerprint, finish, tidy
from gnnretrieval.storage.places import CLAIM, discard, partial_path, put_in_place, recover, scratch


def update_artifact(
    current: Artifact,
    kind: str,
    *,
    change: Mapping[str, Any],
    write: Callable[[Path], Mapping[str, Any]],
    inputs: Mapping[str, str] | None = None,
) -> Artifact:
    """Change an artifact in one step; does nothing if its last update was this ``change``.

    Args:
        current: The artifact as it was read, which the change is made from.
        kind: The kind that it must have.
        change: What identifies the change (content hashes, settings; JSON values).
        write: Called with a directory that holds links to the artifact's files. It replaces the files that change (by
            :func:`rewrite`) and returns the entries of ``meta.json`` that change. What it needs to resume after an
            interruption belongs in :func:`gnnretrieval.storage.places.scratch`.
        inputs: Entries of ``inputs`` that change. None: they stay, and the fingerprint covers the updates instead of
            the settings, so that the artifact no longer counts as made from its inputs.

    Raises:
        ArtifactError: Another process is writing it, or has changed it since it was read.
    """
    path = current.path.resolve()
    with locked(path, kind) as require_lock:
        recover(path)
        artifact = open_artifact(path, kind)
        updates: list[dict[str, Any]] = artifact.meta.get("updates", [])
        if updates and updates[-1]["change"] == change:
            say(f"{path}: this was added before, nothing to do")
            return artifact
        if artifact.hash != current.hash:
            raise ArtifactError(f"{path}: another process changed it meanwhile. Run the command again.")
        partial = _linked_beside(artifact, fingerprint(kind, {"before": artifact.hash}, change))
        try:
            entries = dict(write(partial))
        except GnnRetrievalError:
            discard(partial)  # the change was refused: there is nothing to resume
            raise
        updates = [*updates, {"before": artifact.hash, "change": dict(change)}]
        new_inputs = {**artifact.meta["inputs"], **(inputs or {})}
        as_made = artifact.meta["fingerprint"] == fingerprint(kind, artifact.meta["inputs"], artifact.config)
        identity = fingerprint(kind, new_inputs, artifact.config if inputs and as_made else {"updates": updates})
        figures = {**artifact.meta, **entries, "updates": updates}
        sync_tree(partial, skip=scratch(partial))
        known = _shared(artifact, partial)
        finish(partial, kind, new_inputs, artifact.config, identity, artifact.meta["seed"], figures, known)
        tidy(partial)
        require_lock()
        put_in_place(partial, path)
    return open_artifact(path, kind)


def _linked_beside(artifact: Artifact, identity: str) -> Path:
    """The directory of the new version, with links to the old version's files and what an interrupted update left."""
    partial = partial_path(artifact.path)
    claim = scratch(partial) / CLAIM
    if claim.is_file() and claim.read_text() == identity:
        say(f"{artifact.path}: this update was interrupted, going on")
    else:
        discard(partial)
        scratch(partial).mkdir(parents=True, exist_ok=True)
        claim.write_text(identity)  # not synced: if a power loss takes it, the update begins again
    for name in artifact.meta["files"]:
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        if not (partial / name).exists():  # otherwise written before the interruption
            share_file(artifact.path / name, partial / name)
    return partial


def rewrite(directory: Path, name: str) -> Path:
    """Path in ``directory`` to write ``name`` again, after removing the link to the old version's file."""
    (directory / name).unlink(missing_ok=True)
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    return directory / name


def own_copy(artifact: Artifact, directory: Path, name: str) -> Path:
    """Replace the link ``name`` in ``directory`` with a copy that may be changed; returns its path."""
    target = rewrite(directory, name)
    copy_file(artifact.path / name, target)
    return target


def record_changes(directory: Path, artifact: Artifact, rows: NDArray[np.int64]) -> None:
    """Record the passage rows ``(r,)`` that an update changes, for artifacts made from this one."""
    save_array(rewrite(directory, _changes(len(artifact.meta.get("updates", [])))), np.asarray(rows, dtype=np.uint32))


def changed_since(artifact: Artifact, hash_then: str) -> NDArray[np.int64] | None:
    """Passage rows ``(r,)`` int64 that changed since ``artifact`` had the hash ``hash_then``, sorted.

    Returns:
        The rows; None if the artifact never had this hash.

    Raises:
        ArtifactError: A record of changes is damaged.
    """
    if hash_then == artifact.hash:
        return np.empty(0, dtype=np.int64)
    befores = [record["before"] for record in artifact.meta.get("updates", [])]
    if hash_then not in befores:
        return None
    rows = np.empty(0, dtype=np.int64)
    for number in range(befores.index(hash_then), len(befores)):
        file = artifact.path / _changes(number)
        changes = load_array(file)
        if changes.ndim != 1 or changes.dtype != np.uint32:
            raise damaged(file, f"it is an array of {changes.dtype} {changes.shape}, not a list of rows")
        if len(changes):
            require_rows(changes, artifact.meta["num_passages"], file)
        rows = np.union1d(rows, changes.astype(np.int64))
    return rows


def _changes(number: int) -> str:
    return f"changes/{number:04d}.npy"


def _shared(artifact: Artifact, directory: Path) -> dict[str, str]:
    """sha256 by name of the files that are still shared with the old version."""
    return {
        name: digest
        for name, digest in artifact.meta["files"].items()
        if (directory / name).is_file() and (directory / name).samefile(artifact.path / name)
    }
