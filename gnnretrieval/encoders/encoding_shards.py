"""Encoding in shards of whole windows.

Texts of one window are encoded together, and the batch that a text is in decides how its vector is rounded. So a shard
is a range of windows, and the vectors are those that one process makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from gnnretrieval.data.dataset import Dataset, DatasetPlace
from gnnretrieval.data.sentences import is_of_sentences
from gnnretrieval.encoders.feature_rows import WholeTexts, reading_of, require_finite, windows
from gnnretrieval.encoders.opening import fingerprint_of, open_encoder
from gnnretrieval.encoders.part_files import PartFiles
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings, with_checkpoints_at
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.shards.stage import Shard, parts
from gnnretrieval.storage.array_checks import require_offsets
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, release
from gnnretrieval.storage.artifacts import whole_file

_ROWS = 65536  # rows merged together
_STATE = "counts"
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
        """The file that a shard writes last."""
        return Shard(number, len(self.parts)).file(self.directory, self.unit)

    def beside(self, number: int, what: str) -> Path:
        """Another file of a shard."""
        return Shard(number, len(self.parts)).file(self.directory, f"{self.unit}-{what}")

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
    """Texts in shards, each with its vectors in float16; attributes as :class:`TextShards`.

    With vectors of sentences or tokens, a shard has their files too, and the counts of what was read.
    """

    def run(self, number: int) -> None:
        """As :meth:`TextShards.run`."""
        encoder, rows = _opened(self.settings, self.device), self.parts[number]
        self.require_same(encoder)
        shape, done = (rows.stop - rows.start, encoder.dimension), 0
        with ExitStack() as files:  # the first that is entered gets its name last

            def place(name: str) -> Path:
                return files.enter_context(whole_file(self.beside(number, Path(name).stem), shared=True))

            last = files.enter_context(whole_file(self.path(number), shared=True))
            reading = reading_of(encoder, self.side, self.dataset.open(), place, {})
            size = reading.window
            with ArrayWriter(last, shape, np.float16) as array:
                for window in islice(windows(reading, rows.start, size), -(-shape[0] // size)):
                    vectors = reading.vectors(window, done)
                    require_finite(vectors, encoder)
                    array.write(vectors)
                    done += len(vectors)
            if reading.state:
                with place(_STATE).open("wb") as file:
                    np.save(file, np.array(list(reading.state.values()), dtype=np.int64))

    def merge(self, encoder: TextEncoder, dataset: Dataset, directory: Path) -> WholeTexts:
        """Write the vectors of all shards to the features in ``directory``; returns how they were read.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        with ArrayWriter(directory / f"{self.unit}.npy", (self.total, encoder.dimension), np.float16) as array:
            for number, rows in enumerate(self.parts):
                vectors = load_array(self.path(number), (rows.stop - rows.start, encoder.dimension), np.float16)
                for part in blocks(len(vectors), _ROWS):
                    array.write(vectors[part])
                    release(vectors)
        reading = reading_of(encoder, self.side, dataset, directory.joinpath, {})
        if reading.files is not None:
            for number in range(len(self.parts)):
                self._append(number, reading.files)
        if reading.state:
            counts = np.zeros(len(reading.state), dtype=np.int64)
            for number in range(len(self.parts)):
                counts += load_array(self.beside(number, _STATE), counts.shape, np.int64)
            reading.state = dict(zip(reading.state, counts.tolist(), strict=True))
        return reading

    def _append(self, number: int, files: PartFiles) -> None:
        """Append a shard's vectors of sentences or tokens to ``files``."""
        rows = self.parts[number]
        starts_file = self.beside(number, files.starts.stem)
        starts = load_array(starts_file, (rows.stop - rows.start + 1,), np.int64)
        total = int(starts[-1])
        require_offsets(starts, total, starts_file)
        vectors = load_array(self.beside(number, files.vectors.stem), (total, files.dimension), files.dtype)
        ids = None if files.ids is None else load_array(self.beside(number, files.ids.stem), (total,), np.int32)
        for part in blocks(len(starts) - 1, _ROWS):
            counts, of_parts = np.diff(starts[part.start : part.stop + 1]), slice(starts[part.start], starts[part.stop])
            files.write(vectors[of_parts], counts, rows.start + part.start, None if ids is None else ids[of_parts])
            release(vectors)


def require_sharded(settings: EncoderSettings, dataset: Dataset) -> None:
    """Check that a dataset's texts can be encoded in shards by these settings.

    Raises:
        InputError: They cannot.
    """
    if not settings.is_checkpoint:
        raise InputError("only a checkpoint encodes in shards: leave out --shards and --dry-run.")
    if settings.sentences != "none" and is_of_sentences(dataset):
        raise InputError(
            "passages that are sentences of one text are read together, and not in shards: leave out --shards and "
            "--dry-run.",
            dataset.path,
        )
    fingerprint_of(settings)


@lru_cache(maxsize=1)
def _opened(settings: str, device: str) -> TextEncoder:
    """The encoder, opened once in a process."""
    return open_encoder(EncoderSettings.model_validate_json(settings), device)
