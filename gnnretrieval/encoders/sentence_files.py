"""Files of sentences' vectors in features; their number is known only after the last passage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gnnretrieval.encoders.sentence_vectors import SentenceVectors
from gnnretrieval.storage.arrays import ArrayWriter

SENTENCES, SENTENCE_STARTS = "sentences.npy", "sentence_starts.npy"
_STATE = ("sentences", "sentences_cut")


class SentenceFiles:
    """Writes ``sentences.npy`` and ``sentence_starts.npy`` by windows of passages; both are whole after each window.

    Args:
        directory: Directory of the files.
        dimension: Width of a vector.
        state: :attr:`state` after the last window of an interrupted run; other keys are ignored.
    """

    def __init__(self, directory: Path, dimension: int, state: Mapping[str, int]) -> None:
        self.directory, self.dimension = directory, dimension
        self.state = {name: state.get(name, 0) for name in _STATE}

    def write(self, made: SentenceVectors, passages: int) -> None:
        """Append the sentences of passages that come after ``passages`` others."""
        before = self.state["sentences"]
        starts = before + np.cumsum(np.append(0, made.counts), dtype=np.int64)
        with ArrayWriter(self.directory / SENTENCES, (int(starts[-1]), self.dimension), np.float16, before) as writer:
            writer.write(made.vectors)
        shape = (passages + len(starts),)
        with ArrayWriter(self.directory / SENTENCE_STARTS, shape, np.int64, passages) as writer:
            writer.write(starts)  # the first repeats the last one of the window before
        self.state = {"sentences": int(starts[-1]), "sentences_cut": self.state["sentences_cut"] + made.cut}
