"""Export of an index's vectors as files: ``.npy`` with ids, or Parquet with ids, titles and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.trec import require_writable_ids
from gnnretrieval.data.text_store import PassageRow
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import ArrayWriter, blocks, release
from gnnretrieval.storage.artifacts import whole_file

_BLOCK = 8192  # vectors written together

Write = Callable[[Path, Index, Callable[[int], None]], None]


class Exported(NamedTuple):
    """Some vectors of an index, as other engines get them.

    Attributes:
        ids: Their passages' ids.
        titles: Their passages' titles; empty where a passage has none.
        texts: Their passages' texts; empty if the index holds none.
        vectors: ``(b, d)`` float32, of length 1 if the similarity is cosine.
    """

    ids: list[str]
    titles: list[str]
    texts: list[str]
    vectors: NDArray[np.float32]


def write_vectors(index: Index, path: str | Path) -> list[Path]:
    """Write the vectors of an index's passages, of length 1 if the similarity is cosine.

    ``.npy``: float32 ``(m, d)``, with the ids beside it in ``.ids.txt``, one per line. ``.parquet``: columns ``id``,
    ``title``, ``text`` and ``vector``, a list of fixed size. Each file appears whole or not at all. Removed passages
    are left out. A passage with several vectors has several rows, one after the other, its own first; they are for the
    dot product.

    Returns:
        Paths of the files.

    Raises:
        InputError: ``path`` has another ending, no file can be written there, or an id has white space (``.npy``).
        ArtifactError: It is an index of sentences, or the artifact it was made from has changed or is gone.
        GnnRetrievalError: pyarrow is not installed, for ``.parquet``.
    """
    path = Path(path)
    writers: dict[str, Write] = {".npy": _write_npy, ".parquet": _write_parquet}
    if path.suffix.lower() not in writers:
        raise InputError("vectors are written as .npy or .parquet: end the name in one.", path)
    if path.is_dir():
        raise InputError("this is a directory: name a file for the vectors.", path)
    rows = exported_rows(index)
    if path.suffix.lower() == ".npy":
        require_writable_ids(_ids(index, np.unique(rows)), index.path)
    ids = path.with_suffix(".ids.txt")
    with ExitStack() as together:  # both files are whole before either takes its place
        if path.suffix.lower() == ".npy":
            beside = together.enter_context(whole_file(ids))
            beside.write_text("".join(f"{id_}\n" for id_ in _ids(index, rows)), encoding="utf-8")
        partial = together.enter_context(whole_file(path))
        with progress(f"writing {path.name}", len(rows), "vectors") as meter:
            writers[path.suffix.lower()](partial, index, meter.advance)
        if path.suffix.lower() == ".npy":
            ids.unlink(missing_ok=True)  # so that a kill between the two renames leaves no ids of other vectors
    return [path, ids] if path.suffix.lower() == ".npy" else [path]


def exported_rows(index: Index) -> NDArray[np.int64]:
    """Row of the passage of each vector in the index, sorted.

    Raises:
        ArtifactError: It is an index of sentences.
    """
    return _numbered(index)[1]


def exported_blocks(index: Index) -> Iterator[Exported]:
    """The vectors of an index, block by block, by their passages' rows.

    Raises:
        ArtifactError: As :func:`write_vectors`.
    """
    (numbers, rows), vectors = _numbered(index), index.all_vectors
    parts = list(blocks(len(rows), _BLOCK))
    passages = _passage_of_each((row for part in parts for row in rows[part].tolist()), index.texts.passages())
    for part in parts:
        block = [next(passages) for _ in range(part.stop - part.start)]
        ids, titles = [passage.id for passage in block], [passage.title for passage in block]
        prepared = index.similarity.prepare_array(vectors[numbers[part]])
        yield Exported(ids, titles, [passage.text for passage in block], prepared)
        release(vectors)


def _numbered(index: Index) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of each vector that is exported, and the row of its passage, by row."""
    if index.is_of_sentences:
        raise ArtifactError(f"{index.path}: an index of sentences, and sentences have no ids.")
    rows = index.rows_of_vectors
    order = np.argsort(rows, kind="stable")
    order = order[~np.isin(rows[order], index.removed)]
    return order, rows[order]


def _passage_of_each(rows: Iterable[int], passages: Iterator[PassageRow]) -> Iterator[PassageRow]:
    """The passage at each row; ``rows`` are sorted, and ``passages`` are by row."""
    passage: PassageRow | None = None
    for row in rows:
        while passage is None or passage.row != row:
            passage = next(passages)
        yield passage


def arrow_tables(index: Index) -> tuple[Any, Iterator[Any]]:
    """The schema of :func:`exported_blocks` as Arrow tables (``id``, ``title``, ``text``, ``vector``), and the tables.

    Raises:
        GnnRetrievalError: pyarrow is not installed.
    """
    arrow = extra("pyarrow", "parquet", "Parquet", "or write .npy")
    width: int = index.meta["dimension"]
    kind = arrow.list_(arrow.float32(), width)
    schema = arrow.schema([*((name, arrow.string()) for name in ("id", "title", "text")), ("vector", kind)])

    def table(block: Exported) -> Any:
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(block.vectors.ravel()), width)
        texts = [arrow.array(values, arrow.string()) for values in (block.ids, block.titles, block.texts)]
        return arrow.table([*texts, column], schema=schema)

    return schema, map(table, exported_blocks(index))


def _ids(index: Index, rows: NDArray[np.int64]) -> list[str]:
    ids = index.texts.passage_ids()
    return [ids[row] for row in rows.tolist()]


def _write_npy(path: Path, index: Index, advance: Callable[[int], None]) -> None:
    shape = (len(exported_rows(index)), index.meta["dimension"])
    with ArrayWriter(path, shape, np.float32) as writer:
        for block in exported_blocks(index):
            writer.write(block.vectors)
            advance(len(block.vectors))


def _write_parquet(path: Path, index: Index, advance: Callable[[int], None]) -> None:
    parquet = extra("pyarrow.parquet", "parquet", "Parquet", "or write .npy")
    schema, tables = arrow_tables(index)
    with parquet.ParquetWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(table)
            advance(len(table))
