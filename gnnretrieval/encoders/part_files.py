"""Files of vectors of sentences or tokens in features; their number is known only after the last text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnretrieval.storage.arrays import ArrayWriter

SENTENCES, SENTENCE_STARTS = "sentences.npy", "sentence_starts.npy"
TOKENS, TOKEN_STARTS = "tokens.npy", "token_starts.npy"
QUERY_TOKENS, QUERY_TOKEN_STARTS = "query_tokens.npy", "query_token_starts.npy"
TOKEN_IDS, QUERY_TOKEN_IDS = "token_ids.npy", "query_token_ids.npy"


class PartFiles:
    """Writes vectors of parts, and the first part of each text, by windows of texts; both are whole after each window.

    Args:
        vectors: The file of vectors.
        starts: The file of offsets.
        dimension: Width of a vector.
        dtype: Type of the vectors in the file.
        parts: Number of parts after the last window of an interrupted run.
        ids: The file of the parts' ids; None: they have none.
    """

    def __init__(
        self,
        vectors: Path,
        starts: Path,
        dimension: int,
        dtype: DTypeLike = np.float16,
        parts: int = 0,
        ids: Path | None = None,
    ) -> None:
        self.vectors, self.starts, self.ids = vectors, starts, ids
        self.dimension, self.dtype, self.parts = dimension, dtype, parts

    def write(
        self,
        vectors: NDArray[np.generic],
        counts: NDArray[np.int64],
        texts: int,
        ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Append the parts of texts that come after ``texts`` others.

        Args:
            vectors: Vectors of the parts ``(S, d)``.
            counts: Number of parts of each text.
            texts: Number of texts before these.
            ids: Ids of the parts ``(S,)``, if they have a file.
        """
        starts = self.parts + np.cumsum(np.append(0, counts), dtype=np.int64)
        with ArrayWriter(self.vectors, (int(starts[-1]), self.dimension), self.dtype, self.parts) as writer:
            writer.write(vectors)
        if self.ids is not None and ids is not None:
            with ArrayWriter(self.ids, (int(starts[-1]),), np.int32, self.parts) as writer:
                writer.write(ids)
        with ArrayWriter(self.starts, (texts + len(starts),), np.int64, texts) as writer:
            writer.write(starts)  # the first repeats the last one of the window before
        self.parts = int(starts[-1])
