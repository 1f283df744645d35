"""Checks of an artifact's arrays before native code uses them: there, a row out of range would crash the process.

A check reads an array once, in blocks, and releases their pages. It takes a few hundredths of a second per 100 MB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.storage.arrays import blocks, damaged, release

_BLOCK = 2**22  # numbers


def require_rows(array: NDArray[np.integer], below: int, path: Path) -> None:
    """Refuse an array that has a row outside ``0 … below - 1``.

    Args:
        array: Integer row numbers, of any shape; may be memory-mapped.
        below: One above the largest row allowed.
        path: The array's file, for errors.

    Raises:
        ArtifactError: The array has a row out of range.
    """
    flat = array.reshape(-1)
    for part in blocks(len(flat), _BLOCK):
        low, high = int(flat[part].min()), int(flat[part].max())
        if low < 0 or high >= below:
            raise damaged(path, f"it has row {low if low < 0 else high}, and there are {below:,}")
        release(array)


def require_offsets(offsets: NDArray[np.integer], end: int, path: Path) -> None:
    """Refuse offsets ``(n + 1,)`` that do not start at 0, or do not end at ``end``, or decrease.

    Raises:
        ArtifactError: The offsets are wrong; the message says where they decrease first.
    """
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != end:
        first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (None, None)
        raise damaged(path, f"its offsets go from {first} to {last}, and 0 to {end:,} is wanted")
    for part in blocks(len(offsets) - 1, _BLOCK):
        after = offsets[part.start + 1 : part.stop + 1]
        if (falls := after < offsets[part]).any():
            raise damaged(path, f"its offsets fall after place {part.start + int(falls.argmax())}")
        release(offsets)


def require_finite(vectors: NDArray[Any], path: Path, first: int = 0) -> None:
    """Refuse vectors with a number that is infinite or NaN.

    Args:
        vectors: ``(b, d)``.
        path: The file they are from, for errors.
        first: Row of the first vector in that file, for errors.

    Raises:
        ArtifactError: A vector is not finite; the message gives its row.
    """
    finite = np.isfinite(vectors)
    if not finite.all():
        row = first + int((~finite).any(axis=1).argmax())
        raise damaged(path, f"row {row} holds a number that is not finite")
