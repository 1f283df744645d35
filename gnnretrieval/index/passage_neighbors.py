"""Neighbours of passages: those that share training questions in the graph, and those of near vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import Graph
from gnnretrieval.index.faiss_index import Index

By = Literal["both", "questions", "vectors"]


class PassageNeighbors:
    """The ``k`` neighbours of passages of an index, computed on first use, and kept.

    By questions, a neighbour's weight is the sum of its reciprocal ranks in the training questions that retrieve both
    passages. By vectors, the neighbours are the passage's nearest by the index. By both, they are taken by turns.

    Args:
        index: The index.
        graph: Its graph; None: it has none, and neighbours are by vectors.
        k: Number of neighbours.
        by: What makes passages neighbours.

    Raises:
        ArtifactError: The vectors that the index was made from have moved or changed, or are those of sentences.
    """

    def __init__(self, index: Index, graph: Graph | None, k: int, by: By = "both") -> None:
        self.index, self.k = index, k
        self._graph = None if by == "vectors" else graph
        if by != "questions" and index.is_of_sentences:
            raise ArtifactError(
                f"{index.path}: an index of sentences has no vector of a passage, and so no neighbours. Leave out "
                "--adaptive, or give an index of passages."
            )
        self._vectors = None if by == "questions" else index.vectors
        self._ids = index.texts.passage_ids()
        self._row = {id_: row for row, id_ in enumerate(self._ids)}
        self._shown = np.ones(len(self._ids), dtype=bool)
        self._shown[index.removed] = False
        self._kept: dict[int, list[str]] = {}

    def __call__(self, passages: Sequence[str]) -> list[list[str]]:
        """Neighbours of passages, nearest first."""
        rows = [self._row[id_] for id_ in passages]
        new = [row for row in dict.fromkeys(rows) if row not in self._kept]
        if new:
            near = self._by_vectors(new) if self._vectors is not None else [[]] * len(new)
            for row, of_vectors in zip(new, near, strict=True):
                by_turns = zip_longest(self._by_questions(row), of_vectors)
                joined = dict.fromkeys(neighbor for pair in by_turns for neighbor in pair if neighbor is not None)
                self._kept[row] = [self._ids[neighbor] for neighbor in joined][: self.k]
        return [self._kept[row] for row in rows]

    def _by_questions(self, row: int) -> list[int]:
        if self._graph is None or row >= self._graph.num_passages:
            return []
        edges, _ = self._graph.found_by(np.array([row]))
        weights: dict[int, float] = defaultdict(float)
        for query in np.unique(edges // self._graph.stride).tolist():
            for rank, passage in enumerate(self._graph.neighbors[query].tolist(), 1):
                weights[passage] += 1 / rank
        return self._best(row, sorted(weights, key=lambda passage: (-weights[passage], passage)))

    def _by_vectors(self, rows: Sequence[int]) -> Iterable[list[int]]:
        assert self._vectors is not None
        queries: NDArray[np.float32] = np.asarray(self._vectors[np.array(rows)], dtype=np.float32)
        nearest, _ = self.index.search(queries, min(self.k + 1, int(self._shown.sum())))
        return [self._best(row, passages.tolist()) for row, passages in zip(rows, nearest, strict=True)]

    def _best(self, row: int, passages: Iterable[int]) -> list[int]:
        """The first ``k`` passages that are in the index and not the passage itself."""
        total = len(self._ids)
        others = (passage for passage in passages if passage != row and 0 <= passage < total)
        return [passage for passage in others if self._shown[passage]][: self.k]
