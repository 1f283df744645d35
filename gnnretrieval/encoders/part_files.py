"""Files of vectors of sentences or tokens in features; their number is known only after the last text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnretrieval.storage.arrays import ArrayWriter

SENTENCES, SENTENCE_STARTS = "sentences.npy", "sentence_starts.npy"
TOKENS, TOKEN_STARTS = "tokens.npy", "token_starts.npy"
QUERY_TOKENS, QUERY_TOKEN_STARTS = "query_tokens.npy", "query_token_starts.npy"


class PartFiles:
    """Writes vectors of parts, and the first part of each text, by windows of texts; both are whole after each window.

    Args:
        directory: Directory of the files.
        names: Names of the file of vectors and of the file of offsets.
        dimension: Width of a vector.
        dtype: Type of the vectors in the file.
        parts: Number of parts after the last window of an interrupted run.
    """

    def __init__(
        self, directory: Path, names: tuple[str, str], dimension: int, dtype: DTypeLike = np.float16, parts: int = 0
    ) -> None:
        self.vectors, self.starts = (directory / name for name in names)
        self.dimension, self.dtype, self.parts = dimension, dtype, parts

    def write(self, vectors: NDArray[np.generic], counts: NDArray[np.int64], texts: int) -> None:
        """Append the parts ``(S, d)`` of texts that come after ``texts`` others; ``counts`` is their number by text."""
        starts = self.parts + np.cumsum(np.append(0, counts), dtype=np.int64)
        with ArrayWriter(self.vectors, (int(starts[-1]), self.dimension), self.dtype, self.parts) as writer:
            writer.write(vectors)
        with ArrayWriter(self.starts, (texts + len(starts),), np.int64, texts) as writer:
            writer.write(starts)  # the first repeats the last one of the window before
        self.parts = int(starts[-1])
