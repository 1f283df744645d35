"""Arrays larger than memory: ``.npy`` files written in order by plain writes, and memory maps that release pages.

On a full disk, a plain write fails with an error, but a write through a memory map kills the process with a signal. So
arrays are written by :class:`ArrayWriter` and only read through maps.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib.format import dtype_to_descr, write_array_header_1_0
from numpy.typing import DTypeLike, NDArray

from gnnretrieval.errors import ArtifactError

_FILES: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # descriptor of the file behind each map
ROWS_RESIDENT = 4096  # random rows read from a memory map before its pages are released: 256 MiB at most


class ArrayWriter:
    """Writes an ``.npy`` file of known shape, rows in order; can resume after ``done`` rows of an earlier run.

    Args:
        path: The file.
        shape: Shape of the whole array.
        dtype: Its dtype.
        done: Number of rows already in the file, which are kept.
    """

    def __init__(self, path: str | Path, shape: tuple[int, ...], dtype: DTypeLike, done: int = 0) -> None:
        self.path, self.shape, self.dtype, self.done = Path(path), shape, np.dtype(dtype), done
        self._file = self.path.open("r+b" if done else "wb")
        header = {"descr": dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        write_array_header_1_0(self._file, header)
        self._start = self._file.tell()
        row = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._file.seek(self._start + done * row)
        self._file.truncate()

    def write(self, rows: NDArray[Any]) -> None:
        """Append rows ``(b, *shape[1:])``, converted to the array's dtype.

        Raises:
            ValueError: The rows do not fit into the array.
            OSError: They cannot be written, such as on a full disk; the error names the file.
        """
        if rows.shape[1:] != self.shape[1:] or self.done + len(rows) > self.shape[0]:
            raise ValueError(f"{rows.shape} after {self.done} rows does not fit into {self.shape}")
        try:
            self._file.write(np.ascontiguousarray(rows, dtype=self.dtype).data.cast("B") if rows.size else b"")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None  # names the file
        self.done += len(rows)

    def flush(self) -> None:
        """Hand the written rows to the operating system, so that they survive the death of this process."""
        self._file.flush()

    def close(self) -> None:
        """Close the file, even if rows are missing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and self.done != self.shape[0]:
            raise ValueError(f"{self.path}: {self.done} of {self.shape[0]} rows were written")


def save_array(path: str | Path, array: NDArray[Any]) -> None:
    """Write a whole array as ``.npy``.

    Raises:
        OSError: It cannot be written, such as on a full disk; the error names the file.
    """
    with ArrayWriter(path, array.shape, array.dtype) as writer:
        writer.write(array)


def load_array(path: Path, shape: tuple[int | None, ...] | None = None, dtype: DTypeLike | None = None) -> Any:
    """Open an artifact's ``.npy`` memory-mapped, without pickle (law 8).

    Args:
        path: The file.
        shape: Shape that the array must have; None in a dimension allows any length there.
        dtype: Dtype that it must have.

    Raises:
        ArtifactError: The file is damaged, or the array has another shape or dtype or is stored by column.
    """
    try:
        array = map_npy(path)
    except (ValueError, OSError) as error:
        raise damaged(path, str(error)) from None
    _keep_file(array, path)
    if not array.flags.c_contiguous:
        raise damaged(path, "its header says that it is stored by column")
    if shape is not None and (
        len(shape) != array.ndim or any(w not in (None, h) for w, h in zip(shape, array.shape, strict=True))
    ):
        wanted = ", ".join("any" if length is None else f"{length:,}" for length in shape)
        raise damaged(path, f"its shape is {array.shape}, and ({wanted}) is wanted")
    if dtype is not None and array.dtype != np.dtype(dtype):
        raise damaged(path, f"its type is {array.dtype}, and {np.dtype(dtype)} is wanted")
    return array


def map_npy(path: Path) -> NDArray[Any]:
    """The array in an ``.npy`` file, memory-mapped and without pickle.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not an ``.npy`` file, or it is damaged.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy's header parser raises errors of many types
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("several arrays in one file")
    return array


def _keep_file(array: NDArray[Any], path: Path) -> None:
    """Keep the file behind a memory map open, to read single rows from it; it closes with the map."""
    mapping = _mapping(array)
    if mapping is None or not hasattr(os, "preadv"):
        return
    file = os.open(path, os.O_RDONLY)
    if os.fstat(file).st_size != mapping.size():  # another file has just taken its place
        os.close(file)
        return
    _FILES[mapping] = file
    weakref.finalize(mapping, os.close, file)


def damaged(path: Path, why: str) -> ArtifactError:
    """The error to raise for an array that is not what it should be."""
    return ArtifactError(f"{path}: this array is damaged ({why}). Delete the directory it is in and make it again.")


def release(*arrays: NDArray[Any]) -> None:
    """Release the resident pages of memory-mapped arrays, so that a pass over a large file stays within a budget.

    The pages stay in the system's cache and are mapped again when read. Arrays in memory are left alone.
    """
    for array in arrays:
        _advise(array, "MADV_DONTNEED")


def _advise(array: NDArray[Any], advice: str) -> None:
    mapping = _mapping(array)
    if mapping is not None and hasattr(mmap, advice):
        mapping.madvise(getattr(mmap, advice))


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """The memory map behind an array; None if it is in memory."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base


def blocks(count: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` that cover ``0 … count - 1`` in order."""
    return (slice(start, min(count, start + size)) for start in range(0, count, size))


def gather_rows(array: NDArray[Any], rows: NDArray[np.integer], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Copy rows of an array as ``dtype``: ``(len(rows), *array.shape[1:])``, with few pages of a memory map resident.

    If fewer than a quarter of a mapped matrix's rows are wanted, each is read from the file by itself: through the map,
    the system would load up to 64 KiB around each and read megabytes ahead, at several times the cost. Otherwise the
    pages of the map are released after every few thousand rows.
    """
    mapping = _mapping(array)
    file = _FILES.get(mapping) if mapping is not None else None
    if file is not None and len(rows) < len(array) // 4 and array.flags.c_contiguous and array.ndim > 1:
        return _read_rows(array, rows, file, mapping).astype(dtype)
    gathered = np.empty((len(rows), *array.shape[1:]), dtype=dtype)
    for part in blocks(len(rows), ROWS_RESIDENT):
        gathered[part] = array[rows[part]]
        if len(rows) > ROWS_RESIDENT:
            release(array)
    return gathered


def _read_rows(array: NDArray[Any], rows: NDArray[np.integer], file: int, mapping: Any) -> NDArray[Any]:
    """Read rows from the file behind a memory map, not through the map.

    Raises:
        OSError: A row cannot be read.
    """
    gathered = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
    size = array.strides[0]
    start = array.ctypes.data - np.frombuffer(mapping, dtype=np.uint8).ctypes.data  # a map starts where its file does
    view = gathered.reshape(-1).view(np.uint8).data
    for number, row in enumerate(rows.tolist()):
        place = view[number * size : (number + 1) * size]
        if os.preadv(file, (place,), start + row * size) != size:
            raise OSError(f"row {row} of a memory-mapped array could not be read: was its file cut?")
    return gathered
