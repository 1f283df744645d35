"""Encoding to weights of terms in shards of whole windows, like :mod:`gnnretrieval.encoders.encoding_shards`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from gnnretrieval.encoders.encoding_shards import TextShards
from gnnretrieval.encoders.feature_rows import require_finite, texts_of
from gnnretrieval.encoders.part_files import PartFiles
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.storage.arrays import load_array
from gnnretrieval.storage.artifacts import whole_file

_COUNTS, _TERMS = "counts", "terms"


@dataclass(frozen=True)
class SparseShards(TextShards):
    """Texts in shards, each with the weights of its terms in float16; attributes as :class:`TextShards`.

    A shard has three files: the number of terms of each text ``(b,)``, the terms ``(T,)``, and last their weights
    ``(T,)``.
    """

    def run(self, number: int) -> None:
        """As :meth:`TextShards.run`."""
        encoder, rows = _opened(self.settings, self.device), self.parts[number]
        self.require_same(encoder)
        texts = islice(texts_of(self.dataset.open(), self.side), rows.start, rows.stop)
        made = []
        while window := list(islice(texts, self.encoder_settings.window)):
            made.append(encoder.encode(window, self.side))
            require_finite(made[-1].weights, encoder)
        counts, terms, weights = (np.concatenate(column) for column in zip(*made, strict=True))
        last = self.path(number)
        files = {self.beside(number, _COUNTS): counts, self.beside(number, _TERMS): terms}
        for file, array in {**files, last: weights.astype(np.float16)}.items():
            with whole_file(file, shared=True) as partial, partial.open("wb") as opened:
                np.save(opened, array)

    def merge(self, files: PartFiles) -> None:
        """Write the weights of all shards to ``files``, which have none yet.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        for number, rows in enumerate(self.parts):
            counts = load_array(self.beside(number, _COUNTS), (rows.stop - rows.start,), np.int64)
            terms = load_array(self.beside(number, _TERMS), (int(counts.sum()),), np.int32)
            weights = load_array(self.path(number), (len(terms),), np.float16)
            files.write(weights[:, None], counts, rows.start, terms.astype(np.int64))


@lru_cache(maxsize=1)
def _opened(settings: str, device: str) -> SparseEncoder:
    """The encoder, opened once in a process."""
    return SparseEncoder(EncoderSettings.model_validate_json(settings), device)
