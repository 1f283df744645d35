"""A cross-encoder over pairs of texts in shards.

A pair's result does not depend on the other pairs (:mod:`gnnretrieval.encoders.cross_encoder`), and a shard is a range
of whole blocks, so the files are those that one process writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.settings import CrossEncoderSettings, with_checkpoints_at
from gnnretrieval.errors import ArtifactError
from gnnretrieval.shards.stage import Shard, parts
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array
from gnnretrieval.storage.artifacts import whole_file

if TYPE_CHECKING:
    from gnnretrieval.encoders.cross_encoder import CrossEncoder

PAIRS = 8192  # pairs encoded and written together

Texts = tuple[list[str], list[str], NDArray[np.int64]]  # first texts, second texts, and pairs (b, 2) of positions


@dataclass(frozen=True)
class PairShards(ABC):
    """Pairs of texts in an order, each shard with their probabilities, and vectors if they are wanted.

    Attributes:
        settings: The cross-encoder, as JSON of :class:`CrossEncoderSettings`.
        weights: Hash of the cross-encoder.
        total: Number of pairs.
        count: Number of shards requested; there are at most as many as blocks.
        directory: Directory of the shards.
        device: Device of the cross-encoder.
        vectors: Type of the vectors in a shard's file; None: only probabilities are wanted.
        probabilities: Type of the probabilities.
    """

    settings: str
    weights: str
    total: int
    count: int
    directory: Path
    device: str
    vectors: str | None
    probabilities: str

    @abstractmethod
    def texts(self) -> AbstractContextManager[Callable[[slice], Texts]]:
        """A function from positions of pairs to their texts."""

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.name`."""
        return "cross-encoder"

    @property
    def unit(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.unit`."""
        return "pairs"

    @cached_property
    def parts(self) -> list[slice]:
        """The pairs of each shard."""
        return parts(self.total, self.count, PAIRS)

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        settings = with_checkpoints_at(CrossEncoderSettings.model_validate_json(self.settings), input_at)
        return replace(self, settings=settings.model_dump_json(), directory=directory)

    def path(self, number: int) -> Path:
        """File of a shard's probabilities; it is written after :meth:`vectors_path`."""
        return Shard(number, len(self.parts)).file(self.directory, "probabilities")

    def vectors_path(self, number: int) -> Path:
        """File of a shard's vectors."""
        return Shard(number, len(self.parts)).file(self.directory, "pairs")

    def run(self, number: int) -> None:
        """Encode the pairs of a shard.

        Raises:
            GnnRetrievalError: The cross-encoder is another one here, or makes scores that are not finite.
        """
        encoder = _opened(self.settings, self.device)
        if encoder.checkpoint.hash != self.weights:
            raise ArtifactError(
                f"{encoder.settings.checkpoint}: this machine finds other weights under this name. Give the path of "
                "one copy that all workers see."
            )
        part = self.parts[number]
        count = part.stop - part.start
        probabilities = np.empty(count, dtype=self.probabilities)
        with ExitStack() as stack:
            texts_of, array = stack.enter_context(self.texts()), None
            if self.vectors is not None:
                partial = stack.enter_context(whole_file(self.vectors_path(number), shared=True))
                shape = (count, encoder.dimension)
                array = stack.enter_context(ArrayWriter(partial, shape, np.dtype(self.vectors).type))
            for block in blocks(count, PAIRS):
                encoded = encoder.encode_pairs(*texts_of(slice(part.start + block.start, part.start + block.stop)))
                probabilities[block] = encoded.probabilities
                if array is not None:
                    array.write(encoded.vectors)
        with whole_file(self.path(number), shared=True) as partial, partial.open("wb") as file:
            np.save(file, probabilities)

    def probabilities_of(self, number: int) -> NDArray[np.floating]:
        """Probabilities of a shard's pairs, memory-mapped.

        Raises:
            ArtifactError: The file is damaged.
        """
        part = self.parts[number]
        array: NDArray[np.floating] = load_array(
            self.path(number), (part.stop - part.start,), np.dtype(self.probabilities).type
        )
        return array


@lru_cache(maxsize=1)
def _opened(settings: str, device: str) -> CrossEncoder:
    """The cross-encoder, opened once in a process."""
    from gnnretrieval.encoders.cross_encoder import CrossEncoder  # importing transformers takes seconds

    return CrossEncoder(CrossEncoderSettings.model_validate_json(settings), device)


def seen_by_workers(settings: CrossEncoderSettings) -> str:
    """Settings as :attr:`PairShards.settings`: workers have other working directories."""
    place = Path(settings.checkpoint)
    if place.is_dir():
        settings = settings.model_copy(update={"checkpoint": str(place.resolve())})
    return settings.model_dump_json()
