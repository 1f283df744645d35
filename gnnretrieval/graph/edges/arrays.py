"""Features of edges and self-loops, in every stored form.

An edge's features are the cheap ones (float16 columns) followed by an edge vector: a cross-encoder's [CLS] vector of
the pair or a vector from the user's file, stored as float16 or as int8 with one scale per edge, perhaps projected to
fewer dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.storage.arrays import ROWS_RESIDENT, blocks, release

if TYPE_CHECKING:
    from gnnretrieval.graph.store import Graph


class EdgeArrays(NamedTuple):
    """The stored arrays of edge features, memory-mapped.

    Attributes:
        cheap: ``(n, k, c)`` float16.
        vectors: ``(n, k, w)`` float16 or int8 edge vectors; None: there are none.
        scales: ``(n, k)`` float32, factors of the int8 vectors; None: the vectors are float16.
        query_loops: ``(n, w)`` float16 vectors of the queries' self-loops; None: they are learned.
        passage_loops: ``(m, w)`` float16, the same for passages.
    """

    cheap: NDArray[np.float16]
    vectors: NDArray[Any] | None
    scales: NDArray[np.float32] | None
    query_loops: NDArray[np.float16] | None
    passage_loops: NDArray[np.float16] | None

    @classmethod
    def open(cls, store: Graph) -> Self:
        """Open the arrays of a store.

        Raises:
            ArtifactError: An array is damaged or does not fit the others.
        """
        n, stride, m = store.num_queries, store.stride, store.num_passages
        cheap = store.array("edge_features", (n, stride, len(store.config["edge_features"])), np.float16)
        width: int | None = store.meta.get("edge_vectors")
        if not width:
            return cls(cheap, None, None, None, None)
        reduced = store.config["edge_form"] == "int8"
        vectors = store.array("edge_vectors", (n, stride, width), np.int8 if reduced else np.float16)
        scales = store.array("edge_scales", (n, stride), np.float32) if reduced else None
        if store.config["self_loops"] == "learned":
            return cls(cheap, vectors, scales, None, None)
        return cls(
            cheap,
            vectors,
            scales,
            store.array("query_loops", (n, width), np.float16),
            store.array("passage_loops", (m, width), np.float16),
        )

    @property
    def width(self) -> int:
        """Number of features of an edge, ``d_e``."""
        return int(self.cheap.shape[2]) + (0 if self.vectors is None else int(self.vectors.shape[2]))

    def stored(self, edges: Rows) -> tuple[NDArray[Any] | None, NDArray[np.float32] | None]:
        """Stored edge vectors ``(E, w)`` and scales ``(E,)`` of some edges, unconverted; None where there are none."""
        queries, ranks = np.divmod(edges, self.cheap.shape[1])
        return (
            None if self.vectors is None else self.vectors[queries, ranks],
            None if self.scales is None else self.scales[queries, ranks],
        )

    def gather(self, edges: Rows) -> NDArray[np.float32]:
        """Features of some edges ``(E, d_e)`` float32; an edge is named ``query row * k + rank``."""
        features = np.empty((len(edges), self.width), dtype=np.float32)
        columns, stride = self.cheap.shape[2], self.cheap.shape[1]
        for part in blocks(len(edges), ROWS_RESIDENT):
            queries, ranks = np.divmod(edges[part], stride)
            if columns:
                features[part, :columns] = self.cheap[queries, ranks]
            if self.vectors is not None:
                features[part, columns:] = self.vectors[queries, ranks]
                release(self.vectors)
            if self.scales is not None:
                features[part, columns:] *= self.scales[queries, ranks][:, None]
        return features


def quantize(vectors: NDArray[np.floating]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors ``(…, w)`` as int8, and their scales ``(…,)``, which map the largest magnitude to 127."""
    scales = np.abs(vectors).max(axis=-1, initial=0).astype(np.float32) / 127
    units = vectors / np.maximum(scales, np.finfo(np.float32).tiny)[..., None]
    return np.rint(units).astype(np.int8), scales
