"""Rankings by the dual-encoder alone, over the passages of a GNN-encoder's index."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.runs.ranking import places_by_id
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.engines import Engine, TorchEngine
from gnnretrieval.index.faiss_index import PLACES, Index, open_index
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import open_embeddings

NAME = "index-dual-encoder"  # the dual-encoder's index in a recipe's directory


def indexes_beside(index: Index) -> list[Index]:
    """The dual-encoder's index beside ``index``, and the indexes of GNN-encoders there over the same graph."""
    found, graph = [], _graph_of(index)
    for name in (NAME, *PLACES.values()):
        place = index.path.resolve().parent / name
        if place == index.path.resolve():
            continue
        try:
            other = open_index(place)
        except ArtifactError:
            continue
        if name == NAME or (graph is not None and _graph_of(other) == graph):
            found.append(other)
    return found


def _graph_of(index: Index) -> Path | None:
    """Place of the graph that an index's passages were embedded over; None if it is not known."""
    try:
        return open_embeddings(index.made_from(EMBEDDINGS)).made_from("graph")
    except ArtifactError:
        return None


class Baseline:
    """Searches the features that the graph was built from, without any message from questions.

    With the dual-encoder's index, that index is searched. Otherwise the features in the graph are searched exactly,
    in time proportional to the number of passages.

    Args:
        store: The graph.
        index: The dual-encoder's index over the same features, or None.
        removed: Rows of the passages to leave out, sorted; None: none.
    """

    def __init__(self, store: Graph, index: Index | None = None, removed: NDArray[np.int64] | None = None) -> None:
        self._store, self._index = store, index
        self._removed = np.empty(0, dtype=np.int64) if removed is None else removed

    @cached_property
    def _engine(self) -> Engine:
        if self._index is None:
            store = self._store

            def by_id(rows: NDArray[np.int64]) -> NDArray[np.int64]:
                with store.texts() as texts:
                    return places_by_id(rows, texts.ids_of_passages)

            return TorchEngine(store.passage_features, store.similarity, self._removed, ties=by_id)
        still_indexed = np.setdiff1d(self._removed, self._index.removed)
        return self._index.engine_without(still_indexed) if len(still_indexed) else self._index.engine

    @classmethod
    def of(cls, store: Graph, place: Path, removed: NDArray[np.int64] | None = None) -> Baseline:
        """The baseline of a graph, with the index at ``place`` if it is of the graph's features and lacks no passage.

        Passages in ``removed`` may be missing.
        """
        try:
            index = open_index(place)
        except ArtifactError:
            return cls(store, removed=removed)
        same = index.meta["inputs"].get("features") == store.meta["inputs"]["features"]
        whole = index.meta["num_passages"] + len(index.removed) == store.num_passages
        holds = np.isin(index.removed, [] if removed is None else removed).all()
        return cls(store, index if same and whole and holds and not index.is_of_sentences else None, removed)

    def keep_open(self, in_memory: bool = False) -> None:
        """As :meth:`gnnretrieval.index.faiss_index.Index.keep_open`."""
        if self._index is not None:
            self._index.keep_open(in_memory)
        _ = self._engine

    def close(self) -> None:
        """Close the index's texts, which :meth:`keep_open` opened; arrays close by themselves."""
        if self._index is not None:
            self._index.texts.close()

    @property
    def is_indexed(self) -> bool:
        """Whether it searches an index."""
        return self._index is not None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """As :meth:`gnnretrieval.index.faiss_index.Index.search`."""
        return self._engine.search(np.ascontiguousarray(self._store.similarity.prepare_array(queries)), k)
