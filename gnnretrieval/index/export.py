"""Export of an index's vectors and ids to other engines: ``.npy``, Parquet, or a PostgreSQL table with pgvector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.trec import require_writable_ids
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import ArrayWriter, blocks, release
from gnnretrieval.storage.artifacts import whole_file

_BLOCK = 8192  # vectors written together
_INDEXED = 2000  # largest dimension of a vector that pgvector can index

Write = Callable[[Path, Index, Callable[[int], None]], None]


def write_vectors(index: Index, path: str | Path) -> list[Path]:
    """Write the vectors of an index's passages, of length 1 if the similarity is cosine.

    ``.npy``: float32 ``(m, d)``, with the ids beside it in ``.ids.txt``, one per line. ``.parquet``: columns ``id`` and
    ``vector``, a list of fixed size. Each file appears whole or not at all. Removed passages are left out.

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
    rows = _rows(index)
    if path.suffix.lower() == ".npy":
        require_writable_ids(_ids(index, rows), index.path)
    with progress(f"writing {path.name}", len(rows), "vectors") as meter, whole_file(path) as partial:
        writers[path.suffix.lower()](partial, index, meter.advance)
    ids = path.with_suffix(".ids.txt")
    if path.suffix.lower() != ".npy":
        return [path]
    with whole_file(ids) as partial:
        partial.write_text("".join(f"{id_}\n" for id_ in _ids(index, rows)), encoding="utf-8")
    return [path, ids]


def write_pgvector(
    index: Index, dsn: str, table: str = "passages", *, approximate: bool = False, overwrite: bool = False
) -> str:
    """Copy an index's ids and vectors into a table of a PostgreSQL database with pgvector, in one transaction.

    Columns are ``id`` (text, primary key) and ``embedding`` (``vector(d)``). Vectors have length 1 if the similarity is
    cosine, so the inner product ranks as our own search does.

    Args:
        index: The index.
        dsn: The database, such as ``postgresql://user@host/name``.
        table: Name of the new table.
        approximate: Make an HNSW index over the vectors; without it, PostgreSQL searches exactly.
        overwrite: Replace a table of this name.

    Returns:
        The SQL that answers a question with the vector ``%(question)s``.

    Raises:
        InputError: PostgreSQL cannot be reached, has no pgvector, has the table already or reports another error; or
            ``approximate`` is set and the vectors have more than 2,000 dimensions.
        ArtifactError: As :func:`write_vectors`.
        GnnRetrievalError: psycopg is not installed.
    """
    psycopg = extra("psycopg", "pgvector", "PostgreSQL")
    sql = extra("psycopg.sql", "pgvector", "PostgreSQL")
    rows, dimension = _rows(index), index.meta["dimension"]
    if approximate and dimension > _INDEXED:
        raise InputError(f"pgvector indexes vectors of up to {_INDEXED:,} numbers, and these have {dimension:,}.")
    name = sql.Identifier(table)
    try:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if overwrite:
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            columns = sql.SQL("id text PRIMARY KEY, embedding vector({}) NOT NULL").format(sql.Literal(dimension))
            cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, columns))
            copy = sql.SQL("COPY {} (id, embedding) FROM STDIN").format(name)
            with (
                progress(f"copying into {table}", len(rows), "vectors") as meter,
                cursor.copy(copy) as stream,
            ):
                for ids, vectors in _blocks(index):
                    for id_, vector in zip(ids, vectors, strict=True):
                        stream.write_row((id_, "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"))
                    meter.advance(len(ids))
            if approximate:
                cursor.execute(sql.SQL("CREATE INDEX ON {} USING hnsw (embedding vector_ip_ops)").format(name))
    except psycopg.errors.DuplicateTable:
        raise InputError(f"table {table!r} is there already: name another with --table, or pass --overwrite.") from None
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"PostgreSQL says: {reason}. Nothing was written.") from None
    order = "embedding <#> %(question)s"  # pgvector's negative inner product
    return f"SELECT id, -({order}) AS score FROM {name.as_string()} ORDER BY {order} LIMIT 10"


def _rows(index: Index) -> NDArray[np.int64]:
    """Rows of the passages that are in the index."""
    if index.is_of_sentences:
        raise ArtifactError(f"{index.path}: an index of sentences, which have no ids of their own.")
    return np.setdiff1d(np.arange(len(index.vectors)), index.removed)


def _ids(index: Index, rows: NDArray[np.int64]) -> list[str]:
    ids = index.texts.passage_ids()
    return [ids[row] for row in rows.tolist()]


def _blocks(index: Index) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Ids and vectors ``(b, d)``, block by block; vectors have length 1 if the similarity is cosine."""
    rows, vectors = _rows(index), index.vectors
    ids = _ids(index, rows)
    for part in blocks(len(rows), _BLOCK):
        yield ids[part], index.similarity.prepare_array(vectors[rows[part]])
        release(vectors)


def _write_npy(path: Path, index: Index, advance: Callable[[int], None]) -> None:
    shape = (len(_rows(index)), index.meta["dimension"])
    with ArrayWriter(path, shape, np.float32) as writer:
        for _, vectors in _blocks(index):
            writer.write(vectors)
            advance(len(vectors))


def _write_parquet(path: Path, index: Index, advance: Callable[[int], None]) -> None:
    pyarrow = extra("pyarrow", "parquet", "Parquet", "or write .npy")
    parquet = extra("pyarrow.parquet", "parquet", "Parquet")
    width: int = index.meta["dimension"]
    kind: Any = pyarrow.list_(pyarrow.float32(), width)
    schema = pyarrow.schema([("id", pyarrow.string()), ("vector", kind)])
    with parquet.ParquetWriter(path, schema) as writer:
        for ids, vectors in _blocks(index):
            column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), width)
            writer.write_table(pyarrow.table([pyarrow.array(ids), column], schema=schema))
            advance(len(ids))
