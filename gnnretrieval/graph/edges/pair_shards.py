"""The cross-encoder's vectors of a graph's edges in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.pair_shards import PAIRS, PairShards, Texts
from gnnretrieval.graph.edges.pair_texts import Pairs
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.storage.arrays import blocks, load_array, release


@dataclass(frozen=True)
class EdgeShards(PairShards):
    """The pairs of a graph's edges in the order of the passages, each shard with vectors and probabilities.

    Attributes:
        text_store: File of the texts.
        neighbors: File of the neighbours ``(n, k)``.
        edges: File of the edges ``(E,)`` in the order of the passages.
    """

    text_store: Path
    neighbors: Path
    edges: Path

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        text_store, neighbors, edges = input_at(self.text_store), input_at(self.neighbors), input_at(self.edges)
        stage = super().moved(input_at, directory)
        return replace(stage, text_store=text_store, neighbors=neighbors, edges=edges)

    @contextmanager
    def texts(self) -> Iterator[Callable[[slice], Texts]]:
        """As :meth:`PairShards.texts`."""
        edges = load_array(self.edges)
        with TextStore(self.text_store) as texts:
            pairs = Pairs(texts, load_array(self.neighbors))
            yield lambda part: pairs.of(edges[part])

    def blocks(self, dimension: int) -> Iterator[tuple[Rows, NDArray[np.floating], NDArray[np.floating]]]:
        """Edges ``(b,)``, their vectors ``(b, dimension)`` and probabilities ``(b,)``, block by block.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        edges = load_array(self.edges)
        for number, part in enumerate(self.parts):
            count = part.stop - part.start
            vectors = load_array(self.vectors_path(number), (count, dimension), np.dtype(self.vectors).type)
            probabilities = self.probabilities_of(number)
            for block in blocks(count, PAIRS):
                yield edges[part][block], vectors[block], probabilities[block]
                release(vectors)
