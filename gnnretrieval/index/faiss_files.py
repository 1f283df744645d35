"""Reading FAISS files that somebody else may have written: within the file's size, and refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.errors import ArtifactError

_LEAST = 32  # bytes of the smallest file that FAISS writes; it maps shorter ones and reads past their end
_TABLE, _LARGEST_TABLE = 256, 2**33  # bytes of that table: at most so many times the centroids', and in all
_LOCK = Lock()  # FAISS's limits are the process's


def read_faiss(path: Path, *, in_memory: bool = False) -> Any:
    """The FAISS index in a file: memory-mapped, so that opening reads next to nothing, or whole to be changed.

    No vector that the file declares may be longer than the file, no loop have more turns than it has bytes.

    Raises:
        ArtifactError: it is no FAISS index, or a damaged one.
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
        try:  # FAISS counts a table that it would make of an IVF index's product quantizer
            return _read(path, flags, size, max(size, min(_TABLE * size, _LARGEST_TABLE)))
        except (RuntimeError, MemoryError) as error:
            raise _damaged(path) from error


def _read(path: Path, flags: int, loops: int, vector: int) -> Any:
    """Read within limits: turns of a loop, and bytes of a vector."""
    faiss = import_faiss()
    if hasattr(faiss, "set_deserialization_vector_byte_limit"):  # faiss-gpu 1.14.1 has none yet
        faiss.set_deserialization_vector_byte_limit(vector)
        faiss.set_deserialization_loop_limit(loops)
    return faiss.read_index(str(path), flags)


def require_fits(index: Any, dimension: int, most: int, path: Path) -> None:
    """Refuse an index of vectors of another width, or of more of them than there are rows.

    Args:
        index: The FAISS index.
        dimension: Width of its vectors.
        most: Rows that its numbers may mean.
        path: Its artifact, for errors.

    Raises:
        ArtifactError: it does not fit.
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
