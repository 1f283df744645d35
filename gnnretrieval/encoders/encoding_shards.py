"""Encoding in shards of whole windows.

Texts of one window are encoded together, and the batch that a text is in decides how its vector is rounded. So a shard
is a range of windows, and the vectors are those that one process makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from gnnretrieval.data.dataset import DatasetPlace
from gnnretrieval.encoders.feature_rows import WholeTexts, require_finite, windows
from gnnretrieval.encoders.opening import fingerprint_of, open_encoder
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings, with_checkpoints_at
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.shards.stage import Shard, parts
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, release
from gnnretrieval.storage.artifacts import whole_file

_ROWS = 65536  # rows merged together
FILES: dict[Side, str] = {"passage": "passages", "query": "queries"}


@dataclass(frozen=True)
class TextShards(ABC):
    """The texts of one side of a dataset in shards; what a shard writes is a subclass's.

    Attributes:
        dataset: The dataset.
        settings: The encoder, as JSON of :class:`EncoderSettings`.
        weights: Hash of the encoder's weights for this side.
        side: Passages or queries.
        total: Number of texts.
        count: Number of shards requested; there are at most as many as windows.
        directory: Directory of the shards.
        device: Device of the encoder.
    """

    dataset: DatasetPlace
    settings: str
    weights: str
    side: Side
    total: int
    count: int
    directory: Path
    device: str

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.name`."""
        return f"encoding {self.unit}"

    @property
    def unit(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.unit`."""
        return FILES[self.side]

    @cached_property
    def parts(self) -> list[slice]:
        """The rows of each shard: whole windows."""
        return parts(self.total, self.count, self.encoder_settings.window)

    @cached_property
    def encoder_settings(self) -> EncoderSettings:
        """The encoder's settings."""
        return EncoderSettings.model_validate_json(self.settings)

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        settings = with_checkpoints_at(self.encoder_settings, input_at).model_dump_json()
        return replace(self, dataset=self.dataset.moved(input_at), settings=settings, directory=directory)

    def path(self, number: int) -> Path:
        """File of the vectors of a shard."""
        return Shard(number, len(self.parts)).file(self.directory, self.unit)

    @abstractmethod
    def run(self, number: int) -> None:
        """Encode a shard.

        Raises:
            GnnRetrievalError: The dataset or the encoder is another one here, or makes numbers that are not finite.
        """

    def require_same(self, encoder: TextEncoder | SparseEncoder) -> None:
        """Check that an encoder opened here has the weights that the command found.

        Raises:
            ArtifactError: It has others.
        """
        if encoder.fingerprint[self.side] != self.weights:
            raise ArtifactError(
                f"{encoder.settings.checkpoint}: this machine finds other weights under this name. Give the path of "
                "one copy that all workers see."
            )


@dataclass(frozen=True)
class EncodingShards(TextShards):
    """Texts in shards, each with its vectors in float16; attributes as :class:`TextShards`."""

    def run(self, number: int) -> None:
        """As :meth:`TextShards.run`."""
        encoder = _opened(self.settings, self.device)
        self.require_same(encoder)
        reading, rows = WholeTexts(encoder, self.side, self.dataset.open()), self.parts[number]
        size = reading.window
        shape = (rows.stop - rows.start, encoder.dimension)
        with whole_file(self.path(number), shared=True) as partial, ArrayWriter(partial, shape, np.float16) as array:
            for window in islice(windows(reading, rows.start, size), -(-shape[0] // size)):
                vectors = reading.vectors(window, 0)
                require_finite(vectors, encoder)
                array.write(vectors)

    def merge(self, path: Path, dimension: int) -> None:
        """Write the vectors of all shards ``(total, dimension)`` float16 to ``path``.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        with ArrayWriter(path, (self.total, dimension), np.float16) as array:
            for number, rows in enumerate(self.parts):
                vectors = load_array(self.path(number), (rows.stop - rows.start, dimension), np.float16)
                for part in blocks(len(vectors), _ROWS):
                    array.write(vectors[part])
                    release(vectors)


def require_sharded(settings: EncoderSettings) -> None:
    """Check that texts can be encoded in shards by these settings.

    Raises:
        InputError: They cannot.
    """
    several = settings.sentences != "none" or settings.late_interaction is not None
    if not settings.is_checkpoint or several:
        raise InputError(
            "only a checkpoint with one vector per text, or with weights of terms, encodes in shards: leave out "
            "--shards and --dry-run."
        )
    fingerprint_of(settings)


@lru_cache(maxsize=1)
def _opened(settings: str, device: str) -> TextEncoder:
    """The encoder, opened once in a process."""
    return open_encoder(EncoderSettings.model_validate_json(settings), device)
