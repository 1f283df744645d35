"""The cross-encoder's vectors of a graph's edges in shards.

A pair's vector does not depend on the other pairs (:mod:`gnnretrieval.encoders.cross_encoder`), and a shard is a range
of whole blocks, so the files are those that one process writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.edges.pair_texts import PAIRS, Pairs
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.shards.stage import Shard, parts
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, release
from gnnretrieval.storage.artifacts import whole_file

if TYPE_CHECKING:
    from gnnretrieval.encoders.cross_encoder import CrossEncoder


@dataclass(frozen=True)
class PairShards:
    """The pairs of a graph's edges in the order of the passages, each shard with vectors and probabilities.

    Attributes:
        store: The half-made graph: texts, neighbours and passage side.
        settings: Settings of the graph, as JSON of :class:`GraphSettings`.
        weights: Hash of the cross-encoder.
        total: Number of edges.
        count: Number of shards asked for; there are no more than blocks.
        directory: Directory of the shards.
        device: Device of the cross-encoder.
    """

    store: Path
    settings: str
    weights: str
    total: int
    count: int
    directory: Path
    device: str

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.Stage.name`."""
        return "cross-encoder"

    @property
    def unit(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.Stage.unit`."""
        return "pairs"

    @cached_property
    def parts(self) -> list[slice]:
        """The edges of each shard, as positions in the order of the passages."""
        return parts(self.total, self.count, PAIRS)

    @cached_property
    def _graph_settings(self) -> GraphSettings:
        return GraphSettings.model_validate_json(self.settings)

    def path(self, number: int) -> Path:
        """File of a shard's probabilities; it is written after :meth:`_vectors`."""
        return Shard(number, len(self.parts)).file(self.directory, "probabilities")

    def _vectors(self, number: int) -> Path:
        return Shard(number, len(self.parts)).file(self.directory, "pairs")

    @property
    def _precision(self) -> type[np.floating]:
        """Half precision if vectors are stored as they are."""
        its = self._graph_settings
        return np.float32 if its.edge_form == "int8" or its.edge_dimensions else np.float16

    def run(self, number: int) -> None:
        """Encode the pairs of a shard.

        Raises:
            GnnRetrievalError: The cross-encoder is another one here, or makes scores that are not finite.
        """
        encoder = _opened(self.settings, self.device)
        if encoder.checkpoint.hash != self.weights:
            raise ArtifactError(
                f"{self._graph_settings.cross_encoder}: this machine finds other weights under this name. Give the "
                "path of one copy that all workers see."
            )
        part = self.parts[number]
        count = part.stop - part.start
        edges = load_array(self.store / "passage_edges.npy")[part]
        probabilities = np.empty(count, dtype=np.float16)
        vectors = self._vectors(number)
        with (
            TextStore(self.store / "texts.sqlite") as texts,
            whole_file(vectors, shared=True) as partial,
            ArrayWriter(partial, (count, encoder.dimension), self._precision) as array,
        ):
            pairs = Pairs(texts, load_array(self.store / "neighbors.npy"))
            for block in blocks(count, PAIRS):
                encoded = encoder.encode_pairs(*pairs.of(edges[block]))
                array.write(encoded.vectors)
                probabilities[block] = encoded.probabilities
        with whole_file(self.path(number), shared=True) as partial:
            np.save(partial.open("wb"), probabilities)

    def blocks(self, dimension: int) -> Iterator[tuple[Rows, NDArray[np.floating], NDArray[np.float16]]]:
        """Edges ``(b,)``, their vectors ``(b, dimension)`` and probabilities ``(b,)``, block by block.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        edges = load_array(self.store / "passage_edges.npy")
        for number, part in enumerate(self.parts):
            count = part.stop - part.start
            vectors = load_array(self._vectors(number), (count, dimension), self._precision)
            probabilities = load_array(self.path(number), (count,), np.float16)
            for block in blocks(count, PAIRS):
                yield edges[part][block], vectors[block], probabilities[block]
                release(vectors)


@lru_cache(maxsize=1)
def _opened(settings: str, device: str) -> CrossEncoder:
    """The cross-encoder, opened once in a process."""
    from gnnretrieval.encoders.cross_encoder import CrossEncoder  # importing transformers takes seconds

    return CrossEncoder(GraphSettings.model_validate_json(settings).cross_encoder_settings, device)
