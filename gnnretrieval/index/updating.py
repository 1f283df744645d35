"""Updating an index: vectors replaced and added as in its source, and passages removed by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError, InputError, counted, nearest
from gnnretrieval.index.building import add_vectors, numbers_itself, open_shards, plan_of, write_shards
from gnnretrieval.index.faiss_index import KIND, REMOVED, ROWS, TEXTS, Index, open_index
from gnnretrieval.index.part_shards import unit_of
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.progress import say
from gnnretrieval.storage.arrays import blocks, save_array
from gnnretrieval.storage.artifacts import share_file
from gnnretrieval.storage.places import settle
from gnnretrieval.storage.provenance import sha256_of_json
from gnnretrieval.storage.purged import is_purged
from gnnretrieval.storage.updating import changed_since, rewrite, update_artifact
from gnnretrieval.training.gnn.embeddings import Embeddings

_BLOCK = 65536  # vectors at a time

Vectors = Callable[[NDArray[np.int64]], NDArray[np.float32]]


class _Contents(NamedTuple):
    """The FAISS indexes of an index, in memory to be changed, and the rows of their numbers.

    Attributes:
        shards: FAISS indexes, one per file.
        rows: Row by number, -1 if the vector was replaced or removed; None if numbers are stored and are the rows.
    """

    shards: list[Any]
    rows: NDArray[np.int64] | None


def update_index(source: Embeddings | Features, out: str | Path) -> Index:
    """Update the index at ``out`` to its updated ``source``: changed vectors are replaced, new ones are added.

    Ids stay, and removed passages stay removed. In inverted lists and flat codes a vector is replaced. In other kinds,
    such as HNSW, the new vector is added and searches skip the old one until the index is built again. Where passages
    have several vectors, all are written again, into an index of the same kind.

    Raises:
        ArtifactError: The index was not made from an earlier version of ``source``, is an index of sentences, or has
            passages that were purged from ``source``.
    """
    settle(Path(out), KIND)
    current = open_index(out)
    before = current.meta["inputs"].get(source.meta["kind"], "")
    if before == source.hash:
        say(f"{out}: already up to date with {source.path}")
        return current
    changed = changed_since(source, before)
    if changed is None or current.is_of_sentences:
        raise ArtifactError(
            f"{out}: made from other vectors than any earlier state of {source.path}. Build it without --changed."
        )
    known = current.meta["num_passages"] + len(current.removed)
    vectors = source.passages
    replaced = np.setdiff1d(changed[changed < known], current.removed)
    _require_purged_too(current, source, replaced)

    def write_all(directory: Path) -> dict[str, Any]:
        return _write_all(directory, current, source)

    def write(directory: Path) -> dict[str, Any]:
        contents = _contents(current)
        added = np.arange(known, len(vectors))
        rows, touched = _put(contents, replaced, added, lambda rows: source.similarity.prepare_array(vectors[rows]))
        _write(directory, current.files, contents.shards, touched)
        if rows is not None:
            save_array(rewrite(directory, ROWS), rows)
        share_file(source.path / TEXTS, directory / TEXTS)
        say(f"{counted(len(replaced), 'vector')} replaced, {len(added):,} added")
        return {"num_passages": len(vectors) - len(current.removed), **_figures(directory, current.files, current)}

    inputs = {source.meta["kind"]: source.hash}
    how = write_all if current.has_questions else write
    artifact = update_artifact(current, KIND, change=inputs, inputs=inputs, write=how)
    return Index(artifact.path, artifact.meta)


def _write_all(directory: Path, current: Index, source: Embeddings | Features) -> dict[str, Any]:
    """Write an index of several vectors a passage again, as it was built; returns entries of ``meta.json``."""
    assert isinstance(source, Embeddings)
    vectors, rows = np.array(source.vectors), source.rows
    assert rows is not None
    gone = np.isin(rows, current.removed)
    vectors[gone] = 0  # a removed passage's vectors are in no file
    known: dict[str, Any] = {"parts": len(current.files), "memory": 2.0**20}  # as many files as before
    known |= {name: current.config[name] for name in ("factory", "training", "seed") if name in current.config}
    settings = IndexSettings.parse(known)
    plan = plan_of(settings, len(vectors), source.meta["dimension"])
    for name in current.files:
        (directory / name).unlink(missing_ok=True)
    write_shards(vectors, source.similarity, plan, directory, unit_of(source, False))
    if gone.any():
        shards = open_shards([directory / name for name in plan.files], in_memory=True)
        if numbers_itself(shards[0]):
            _write(directory, plan.files, shards, [shard.remove_ids(np.flatnonzero(gone)) > 0 for shard in shards])
        else:
            rows = np.where(gone, -1, rows)
    save_array(rewrite(directory, ROWS), rows)
    share_file(source.path / TEXTS, directory / TEXTS)
    say(f"{counted(len(vectors), 'vector')} written")
    return {
        "num_passages": source.meta["num_passages"] - len(current.removed),
        "num_vectors": int((~gone).sum()),
        "shards": len(plan.files),
        **_figures(directory, plan.files, current),
    }


def _require_purged_too(current: Index, source: Embeddings | Features, rows: NDArray[np.int64]) -> None:
    """Refuse an index that has passages, among those at ``rows``, which were purged from its source."""
    if not is_purged(source):
        return
    zero = rows[[not np.asarray(source.passages[row]).any() for row in rows.tolist()]]
    with TextStore(source.path / TEXTS) as texts:
        passages = [texts.passage(row) for row in zero.tolist()]
    if gone := [passage.id for passage in passages if not passage.full_text]:
        raise ArtifactError(
            f"{current.path}: {len(gone):,} of its passages were purged from {source.path}, such as {gone[0]!r}. Purge "
            f"them from it too: gnnretrieval index remove {current.path} --purge with their ids."
        )


def remove_passages(out: str | Path, ids: Sequence[str]) -> Index:
    """Remove passages from the index at ``out`` in one step: no search returns them any more.

    Inverted lists lose the vectors. In other kinds, searches skip them until the index is built again.

    Raises:
        InputError: No ids are given, or the index has no passage with an id; the message suggests the nearest id.
    """
    settle(Path(out), KIND)
    current = open_index(out)
    if not ids:
        raise InputError("there is nothing to remove: give ids of passages.")
    with TextStore(current.path / TEXTS) as texts:  # includes passages removed before
        row_of = texts.rows_of_passages(list(dict.fromkeys(ids)))
    unknown = [id_ for id_ in ids if id_ not in row_of]
    if unknown:
        beside = current.texts.ids_beside("passages", unknown[0])
        raise InputError(
            f"{len(unknown):,} of {len(ids):,} ids are of no passage of this index, such as {unknown[0]!r}."
            f"{nearest(unknown[0], beside)} Nothing was removed.",
            current.path,
        )
    rows = np.setdiff1d(np.array(sorted(row_of.values()), dtype=np.int64), current.removed)
    if not len(rows):
        say(f"{out}: removed before, nothing to do")
        return current

    def write(directory: Path) -> dict[str, Any]:
        vectors = current.vector_rows(rows)
        contents = _contents(current)
        if contents.rows is None:
            touched = [shard.remove_ids(vectors) > 0 for shard in contents.shards]
            _write(directory, current.files, contents.shards, touched)
        else:
            contents.rows[np.isin(contents.rows, rows if current.has_questions else vectors)] = -1
            save_array(rewrite(directory, ROWS), contents.rows)
            if (share := (contents.rows < 0).mean()) > 0.2:
                say(
                    f"{100 * share:.0f} % of the vectors are passed over in every search: build the index again soon, "
                    "from vectors without the removed passages (from the same vectors it has them again)"
                )
        save_array(rewrite(directory, REMOVED), np.union1d(current.removed, rows))
        left = sum(int(shard.ntotal) for shard in contents.shards)
        left -= 0 if contents.rows is None else int((contents.rows < 0).sum())
        return {
            "num_passages": current.meta["num_passages"] - len(rows),
            **({"num_vectors": left} if current.has_questions else {}),
            **_figures(directory, current.files, current),
        }

    change = {"removed": sha256_of_json(rows.tolist()), "passages": len(rows)}
    artifact = update_artifact(current, KIND, change=change, write=write)
    return Index(artifact.path, artifact.meta)


def _contents(current: Index) -> _Contents:
    shards = open_shards([current.path / name for name in current.files], in_memory=True)
    if numbers_itself(shards[0]):
        return _Contents(shards, None)
    rows = current.rows_by_number
    return _Contents(shards, np.arange(sum(shard.ntotal for shard in shards)) if rows is None else rows)


def _put(
    contents: _Contents, replaced: NDArray[np.int64], added: NDArray[np.int64], vectors: Vectors
) -> tuple[NDArray[np.int64] | None, list[bool]]:
    """Replace and add the vectors of some rows; returns the new row by number, and which shards changed."""
    faiss, shards, rows = import_faiss(), contents.shards, contents.rows
    touched = [False] * len(shards)
    # inverted lists find a vector by its number, flat codes by its place; other kinds keep the old one, marked as dead
    if rows is None:
        for number, shard in enumerate(shards):
            touched[number] = shard.remove_ids(replaced) > 0
        appended = np.concatenate([replaced, added])
    elif isinstance(shards[0], faiss.IndexFlatCodes):
        numbers = np.flatnonzero(np.isin(rows, replaced))
        first = 0
        for number, shard in enumerate(shards):
            here = numbers[(numbers >= first) & (numbers < first + shard.ntotal)]
            codes = faiss.rev_swig_ptr(shard.codes.data(), shard.ntotal * shard.code_size)
            codes = codes.reshape(shard.ntotal, shard.code_size)
            for part in blocks(len(here), _BLOCK):
                block = np.ascontiguousarray(vectors(rows[here[part]]))
                codes[here[part] - first] = shard.sa_encode(block)
            touched[number] = len(here) > 0
            first += shard.ntotal
        appended = added
    else:
        rows = np.where(np.isin(rows, replaced), -1, rows)
        appended = np.concatenate([replaced, added])
    for part in blocks(len(appended), _BLOCK):
        add_vectors(shards[-1], vectors(appended[part]), appended[part])
        touched[-1] = True
    if rows is None:
        return None, touched
    rows = np.concatenate([rows, appended])
    # without dead vectors the numbers are the rows again, and searches need no translation
    return (None if np.array_equal(rows, np.arange(len(rows))) else rows), touched


def _write(directory: Path, files: list[str], shards: list[Any], touched: list[bool]) -> None:
    for name, shard, changed in zip(files, shards, touched, strict=True):
        if changed:
            import_faiss().write_index(shard, str(rewrite(directory, name)))


def _figures(directory: Path, files: list[str], current: Index) -> dict[str, Any]:
    """Entries of ``meta.json``: the new size of the files, and the number of updates since recall was measured."""
    measured = current.meta.get("measured")
    return {"bytes": sum((directory / name).stat().st_size for name in files)} | (
        {"measured": {**measured, "updates_since": measured.get("updates_since", 0) + 1}} if measured else {}
    )
