"""Reading FAISS files from untrusted sources: reading is bounded by the file's size, and errors are plain sentences."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.errors import ArtifactError

_LEAST = 32  # bytes of the smallest file that FAISS writes; it would read past the end of shorter ones
_TABLE, _LARGEST_TABLE = 256, 2**33  # largest precomputed table: times its centroids (in the file), and in bytes
_LOCK = Lock()  # FAISS's limits are global to the process


def read_faiss(path: Path, *, in_memory: bool = False) -> Any:
    """The FAISS index in a file: memory-mapped, which reads almost nothing, or in memory, to be changed.

    Where FAISS supports limits, no loop may have more iterations than the file has bytes, and no array may be longer
    than the file. If FAISS would compute a table for the index, an array may have 256 times the file's size, up to
    8 GiB.

    Raises:
        ArtifactError: The file cannot be read, is not a FAISS index, or is damaged.
    """
    faiss = import_faiss()
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}). Build the index again.") from None
    if size < _LEAST:
        raise _damaged(path)
    flags = 0 if in_memory else faiss.IO_FLAG_MMAP_IFC
    with _LOCK:
        try:
            return _read(path, flags, size, size)
        except RuntimeError as error:
            if "precomputed_table" not in str(error):
                raise _damaged(path) from error
        except MemoryError as error:
            raise _damaged(path) from error
        try:  # FAISS's limit also counts a table that it would compute for an IVF index with a product quantizer
            return _read(path, flags, size, max(size, min(_TABLE * size, _LARGEST_TABLE)))
        except (RuntimeError, MemoryError) as error:
            raise _damaged(path) from error


def _read(path: Path, flags: int, loops: int, vector: int) -> Any:
    """Read with limits on the iterations of a loop and the bytes of an array."""
    faiss = import_faiss()
    if hasattr(faiss, "set_deserialization_vector_byte_limit"):  # faiss-gpu 1.14.1 has no limits
        faiss.set_deserialization_vector_byte_limit(vector)
        faiss.set_deserialization_loop_limit(loops)
    return faiss.read_index(str(path), flags)


def require_fits(index: Any, dimension: int, most: int, path: Path) -> None:
    """Refuse a FAISS index of another dimension or metric, or with more vectors than there are rows.

    Args:
        index: The FAISS index.
        dimension: Width that its vectors must have.
        most: Maximum number of its vectors.
        path: Its artifact, for errors.

    Raises:
        ArtifactError: The index does not fit.
    """
    if (int(index.d), int(index.metric_type)) != (dimension, import_faiss().METRIC_INNER_PRODUCT):
        raise ArtifactError(
            f"{path}: its FAISS index is not one of {dimension} dimensions by inner product, which meta.json says. "
            "Build the index again."
        )
    if not 0 <= int(index.ntotal) <= most:
        raise ArtifactError(
            f"{path}: its FAISS index has {int(index.ntotal):,} vectors, and there are rows for {most:,}. "
            "Build the index again."
        )


def _damaged(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: this is no FAISS index, or a damaged one. Build the index again.")
