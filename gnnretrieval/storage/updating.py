"""Updating an artifact in one step: a new version beside it that shares every file it does not change.

The new version starts as hard links to the old one's files. What changes is written again (:func:`rewrite`), never
through a link, so the old version stays whole until the new one takes its place; killed at any moment, one of them is
there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.progress import say
from gnnretrieval.storage.array_checks import require_rows
from gnnretrieval.storage.arrays import damaged, load_array, save_array
from gnnretrieval.storage.artifacts import Artifact, open_artifact, share_file
from gnnretrieval.storage.durable import sync_tree
from gnnretrieval.storage.locks import locked
from gnnretrieval.storage.making import fingerprint, finish, tidy
from gnnretrieval.storage.places import CLAIM, discard, partial_path, put_in_place, recover, scratch


def update_artifact(
    path: str | Path,
    kind: str,
    *,
    change: Mapping[str, Any],
    write: Callable[[Path], Mapping[str, Any]],
    inputs: Mapping[str, str] | None = None,
) -> Artifact:
    """Change the artifact at ``path`` in one step; done again with the same ``change`` it does nothing.

    Args:
        path: The artifact.
        kind: What it must be.
        change: What identifies the change (content hashes, settings; JSON values).
        write: Called with a directory that holds the artifact's files as links; replaces those that change (by
            :func:`rewrite`), and returns entries that change in ``meta.json``. What it keeps to go on from, should it
            be interrupted, belongs into :func:`gnnretrieval.storage.places.scratch`.
        inputs: Entries of ``inputs`` that change; not given: they stay, and the artifact is from then on not what is
            made from its inputs.

    Raises:
        ArtifactError: there is no such artifact, or another process is writing it.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir():
        open_artifact(path, kind)  # says that there is none
    with locked(path, kind) as require_lock:
        recover(path)
        artifact = open_artifact(path, kind)
        updates: list[dict[str, Any]] = artifact.meta.get("updates", [])
        if updates and updates[-1]["change"] == change:
            say(f"{path}: this was added before, nothing to do")
            return artifact
        partial = _linked_beside(artifact, fingerprint(kind, {"before": artifact.hash}, change))
        try:
            entries = dict(write(partial))
        except GnnRetrievalError:
            discard(partial)  # refused
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
    """The directory of the new version, with links to the old one's files and what an interrupted update left."""
    partial = partial_path(artifact.path)
    claim = scratch(partial) / CLAIM
    if claim.is_file() and claim.read_text() == identity:
        say(f"{artifact.path}: this update was interrupted, going on")
    else:
        discard(partial)
        scratch(partial).mkdir(parents=True, exist_ok=True)
        claim.write_text(identity)  # lost or cut by a power loss: it begins again
    for name in artifact.meta["files"]:
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        if not (partial / name).exists():  # else written before the interruption
            share_file(artifact.path / name, partial / name)
    return partial


def rewrite(directory: Path, name: str) -> Path:
    """A place in ``directory`` to write ``name`` again: the link to the old version's file is taken away."""
    (directory / name).unlink(missing_ok=True)
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    return directory / name


def own_copy(artifact: Artifact, directory: Path, name: str) -> Path:
    """The file ``name`` in ``directory`` as a copy that may be changed."""
    target = rewrite(directory, name)
    try:
        shutil.copyfile(artifact.path / name, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    return target


def record_changes(directory: Path, artifact: Artifact, rows: NDArray[np.int64]) -> None:
    """Note the passage rows that an update changes, for what is derived from this artifact."""
    save_array(rewrite(directory, _changes(len(artifact.meta.get("updates", [])))), np.asarray(rows, dtype=np.uint32))


def changed_since(artifact: Artifact, hash_then: str) -> NDArray[np.int64] | None:
    """Passage rows that changed since ``artifact`` had the hash ``hash_then``, sorted; None if it never had it.

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
    """Known sha256 of the files that are still the old version's."""
    return {
        name: digest
        for name, digest in artifact.meta["files"].items()
        if (directory / name).is_file() and (directory / name).samefile(artifact.path / name)
    }
