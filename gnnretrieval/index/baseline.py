"""What the dual-encoder alone ranks, over the passages that a GNN-encoder's index holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.faiss_index import Index, open_index


class Baseline:
    """Searches the features that the graph was built from, before any question moved them.

    Its index is used where one lies beside the GNN-encoder's and is of the same features; else the graph's own array is
    gone through, which is exact too and takes longer the more passages there are.

    Args:
        store: The graph.
        index: The dual-encoder's index, or None.
    """

    def __init__(self, store: Graph, index: Index | None = None) -> None:
        self._store = store
        self._index = index

    @classmethod
    def of(cls, store: Graph, place: Path) -> Baseline:
        """By the index at ``place`` where it is the one of this graph's features."""
        try:
            index = open_index(place)
        except ArtifactError:
            return cls(store)
        same = index.meta["inputs"].get("features") == store.meta["inputs"]["features"]
        fits = same and not index.is_of_sentences and index.meta["num_passages"] == store.num_passages
        return cls(store, index if fits else None)

    def keep_open(self, in_memory: bool = False) -> None:
        """As :meth:`gnnretrieval.index.faiss_index.Index.keep_open`."""
        if self._index is not None:
            self._index.keep_open(in_memory)

    @property
    def is_indexed(self) -> bool:
        """Whether an index answers."""
        return self._index is not None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """As :meth:`gnnretrieval.index.faiss_index.Index.search`; ``k`` is at most the number of passages."""
        if self._index is not None:
            return self._index.search(queries, k)
        return exact_top_k(queries, self._store.passage_features, k, self._store.similarity)
