"""Files of vectors from other encoders, ``.npy`` or Parquet, with their ids, read in blocks."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.lines import read_lines
from gnnretrieval.errors import InputError
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, map_npy, release
from gnnretrieval.storage.provenance import sha256_of_json

BLOCK = 2048  # maximum number of vectors read at a time
_BLOCK_NUMBERS = 2**23  # maximum count of numbers read at a time, for wide vectors
_HASHED = 64 * 2**20  # bytes hashed at a time
_ID_COLUMNS = ("id", "_id")
_VECTOR_COLUMNS = ("vector", "embedding", "vectors", "embeddings")


class VectorFile(ABC):
    """Vectors ``(count, dimension)`` in a file, with their ids; made by :func:`open_vectors`.

    Attributes:
        path: The file.
        ids: Distinct ids of the rows; None for an ``.npy`` without ids.
        count: Number of vectors.
        dimension: Width of a vector.
        files: The file, and the file of ids if there is one.
    """

    path: Path
    files: Sequence[Path] = ()
    ids: Sequence[str] | None
    count: int
    dimension: int

    def blocks(self, wanted: NDArray[np.bool_] | None = None) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        """Blocks of rows and their vectors ``(b, dimension)``, float16, float32 or float64, in the order of the file.

        Args:
            wanted: ``(count,)`` bool, True for the rows that must be finite; None: all.

        Raises:
            InputError: A vector is missing, has another width, or contains NaN or infinity; the message names its id.
        """
        for part, block in self._blocks():
            bad = ~np.isfinite(block).all(axis=1)
            if wanted is not None:
                bad &= wanted[part]
            if bad.any():
                self.refuse(part.start + int(bad.argmax()), "holds a number that is NaN or infinite")
            yield part, block

    def hash(self) -> str:
        """sha256 over the sha256 of each of its files."""
        return sha256_of_json([_sha256(path) for path in self.files])

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        """As :meth:`blocks`, unchecked."""

    def refuse(self, row: int, what: str) -> NoReturn:
        """Raise an :class:`InputError` that says ``what`` is wrong with the vector at ``row`` and names its id."""
        name = f"of {self.ids[row]!r}" if self.ids is not None else f"at row {row}"
        raise InputError(f"the vector {name} {what}. Make this vector again.", self.path)


class ArrayVectors(VectorFile):
    """Vectors in memory.

    Args:
        array: ``(count, d)`` array or tensor of floats.
        ids: Id of each row.
        name: Their name in errors.

    Raises:
        InputError: ``array`` is not a matrix of floats, or ``ids`` has another length or an id twice.
    """

    def __init__(self, array: Any, ids: Sequence[str], name: str) -> None:
        self.path = Path(f"<{name}>")
        try:
            rows = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
        except ValueError:
            raise InputError("rows of different lengths; wanted floats (vectors, dimensions).", self.path) from None
        self.ids, self._array = ids, rows
        if rows.ndim != 2 or rows.dtype.kind != "f" or not rows.shape[1]:
            raise InputError(f"an array {rows.shape} of {rows.dtype}; wanted floats (vectors, dimensions).", self.path)
        self.count, self.dimension = rows.shape
        _require_ids(self, self.path)

    def hash(self) -> str:
        """sha256 over its ids, shape, type and bytes."""
        digest = hashlib.sha256(json.dumps([list(self.ids or ()), self._array.shape, str(self._array.dtype)]).encode())
        for part in blocks(self.count, BLOCK):
            digest.update(np.ascontiguousarray(self._array[part]).tobytes())
        return digest.hexdigest()

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        return ((part, _native(self._array[part])) for part in blocks(self.count, _rows_at_once(self.dimension)))


class _Npy(VectorFile):
    def __init__(self, path: Path, ids: Sequence[str] | None) -> None:
        try:
            array = map_npy(path)
        except (ValueError, OSError) as error:
            raise InputError(f"this is no .npy file of numbers, or a damaged one ({error}).", path) from None
        if array.ndim != 2 or array.dtype.kind != "f" or not array.shape[1]:
            raise InputError(f"an array {array.shape} of {array.dtype}; wanted floats (vectors, dimensions).", path)
        self.path, self.ids, self._array = path, ids, array
        self.count, self.dimension = array.shape

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        for part in blocks(self.count, _rows_at_once(self.dimension)):
            yield part, _native(self._array[part])
            release(self._array)


class _Parquet(VectorFile):
    def __init__(self, path: Path) -> None:
        pyarrow = self._pyarrow = _pyarrow()
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(f"this is no Parquet file, or a damaged one ({reason}).", path) from None
        self.path = path
        schema = self._file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"two columns have one name: {', '.join(schema.names)}. Rename one.", path)
        self._column = _column_of_vectors(schema, path)
        id_column = next((name for name in _ID_COLUMNS if name in schema.names), None)
        if id_column is None:
            raise InputError(f"no column of ids: wanted id or _id; present: {', '.join(schema.names)}.", path)
        kind = schema.field(id_column).type
        if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_integer(kind)):
            raise InputError(f"the column {id_column} holds {kind}; wanted ids as strings or integers.", path)
        ids = [id_ for batch in self._batches(id_column) for id_ in batch.to_pylist()]
        if None in ids:
            raise InputError(f"row {ids.index(None)} has no {id_column}.", path)
        self.ids = [str(id_) for id_ in ids]
        self.count = len(self.ids)
        self.dimension = self._first_width()

    def _batches(self, column: str) -> Iterator[Any]:
        try:
            for batch in self._file.iter_batches(BLOCK, columns=[column]):
                yield batch.column(0)
        except (self._pyarrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(f"this Parquet file is damaged ({reason}).", self.path) from None

    def _first_width(self) -> int:
        for batch in self._batches(self._column):
            widths = batch.value_lengths()
            if len(widths) and widths[0].as_py():
                return int(widths[0].as_py())
            break
        raise InputError(f"the column {self._column} begins with no vector.", self.path)

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        start = 0
        for batch in self._batches(self._column):
            widths = np.asarray(batch.value_lengths().fill_null(0))
            if (widths != self.dimension).any():
                row = int((widths != self.dimension).argmax())
                width = (
                    f"has {widths[row]} numbers, and {self.dimension} are in the first" if widths[row] else "is empty"
                )
                self.refuse(start + row, width)
            values = batch.flatten()
            if values.null_count:
                missing = np.asarray(values.is_null()).reshape(len(batch), -1).any(axis=1)
                self.refuse(start + int(missing.argmax()), "lacks a number")
            part = slice(start, start + len(batch))
            yield part, _native(values.to_numpy(zero_copy_only=False)).reshape(len(batch), self.dimension)
            start = part.stop


def open_vectors(path: str | Path, ids_path: str | Path | None = None, ids: Sequence[str] | None = None) -> VectorFile:
    """Open a file of vectors.

    Args:
        path: ``.npy``, floats ``(count, d)``; or ``.parquet`` with a column of ids (``id`` or ``_id``) and one of
            vectors (lists of floats; the one called ``vector`` or ``embedding`` if there are several).
        ids_path: File of ids of an ``.npy``, one per line.
        ids: Ids of an ``.npy`` without ``ids_path`` by row, such as a dataset's.

    Raises:
        InputError: The file is missing or has another format, an id occurs twice, or the number of ids is not that of
            the vectors.
        GnnRetrievalError: The file is Parquet, and pyarrow is not installed.
    """
    path = Path(path)
    if not path.is_file():
        reason = "this is a directory" if path.is_dir() else "no such file"
        raise InputError(f"{reason}; wanted a file of vectors.", path)
    if path.suffix.lower() in {".parquet", ".pq"}:
        if ids_path is not None:
            raise InputError("a Parquet file has its ids in a column: leave out the file of ids.", path)
        opened: VectorFile = _Parquet(path)
    elif path.suffix.lower() == ".npy":
        opened = _Npy(path, _ids_in(Path(ids_path)) if ids_path is not None else ids)
    else:
        raise InputError("vectors are read from .npy and .parquet; this is neither.", path)
    opened.files = [path] if ids_path is None else [path, Path(ids_path)]
    _require_ids(opened, opened.files[-1])
    return opened


def _require_ids(opened: VectorFile, source: Path) -> None:
    """Check that there is one id per vector, and no id twice."""
    if opened.ids is None:
        return
    if len(opened.ids) != opened.count:
        counted = f"{source} has" if source != opened.path else "there are"
        raise InputError(
            f"{opened.count:,} vectors, and {counted} {len(opened.ids):,} ids: give one id a vector.", opened.path
        )
    if len(set(opened.ids)) < opened.count:
        seen: set[str] = set()
        twice = next(id_ for id_ in opened.ids if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} is there twice: keep one vector of it.", source)


def _ids_in(path: Path) -> list[str]:
    return [line.strip() for _, line in read_lines(path, "ids, one a line")]


def _rows_at_once(dimension: int) -> int:
    return max(1, min(BLOCK, _BLOCK_NUMBERS // dimension))


def _native(block: NDArray[Any]) -> NDArray[np.floating]:
    """Floats of 16, 32 or 64 bits in this machine's byte order."""
    return np.asarray(block, dtype=np.dtype(f"f{min(8, block.dtype.itemsize)}"))


def _pyarrow() -> Any:
    extra("pyarrow.parquet", "parquet", "Parquet")
    return extra("pyarrow", "parquet", "Parquet")


def _column_of_vectors(schema: Any, path: Path) -> str:
    types = _pyarrow().types
    lists = [
        field.name
        for field in schema
        if (types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type))
        and types.is_floating(field.type.value_type)
    ]
    named = [name for name in lists if name.lower() in _VECTOR_COLUMNS]
    for columns in (lists, named):
        if len(columns) == 1:
            return str(columns[0])
    present = ", ".join(f"{field.name} ({field.type})" for field in schema)
    problem = f"{len(lists)} columns of vectors ({', '.join(lists)})" if lists else "no column of vectors"
    raise InputError(f"{problem}; wanted one of lists of floats, called vector or embedding. Present: {present}.", path)


def _sha256(path: Path) -> str:
    digest, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file, progress(f"hashing {path.name}", size, "bytes") as meter:
        while part := file.read(_HASHED):
            digest.update(part)
            meter.advance(len(part))
    return digest.hexdigest()
