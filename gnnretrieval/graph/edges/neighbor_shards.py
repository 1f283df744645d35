"""The exact search of the dual-encoder in shards of the passages. Their best are merged by score, then by row.

A score depends on its two vectors alone (:mod:`gnnretrieval.encoders.exact_search`), so the result equals that of a
single search over all passages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset, DatasetPlace
from gnnretrieval.encoders.exact_search import exact_top_k, merge_top_k
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.shards.stage import Shard, parts
from gnnretrieval.storage.arrays import blocks, load_array, save_array
from gnnretrieval.storage.artifacts import whole_file

_QUERIES = 4096  # queries merged together
ALIGNED = 64  # passages: shards begin at multiples, because the search selects candidates by groups


@dataclass(frozen=True)
class NeighborShards:
    """The ``k`` best passages of each query; each shard searches a part of the passages.

    Attributes:
        dataset: The dataset.
        features: Path of its features.
        features_hash: Their hash.
        split: Split of the queries.
        k: Passages per query.
        total: Number of passages.
        count: Requested number of shards.
        directory: Directory of the shards.
        device: Where to compute.
    """

    dataset: DatasetPlace
    features: Path
    features_hash: str
    split: str
    k: int
    total: int
    count: int
    directory: Path
    device: str

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.name`."""
        return "top-k"

    @property
    def unit(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.unit`."""
        return "passages"

    @cached_property
    def parts(self) -> list[slice]:
        """The passages of each shard."""
        return parts(self.total, self.count, ALIGNED)

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        features, dataset = input_at(self.features), self.dataset.moved(input_at)
        return replace(self, dataset=dataset, features=features, directory=directory)

    def path(self, number: int) -> Path:
        """File of a shard's passage rows, written after that of the scores: if it exists, the shard is done."""
        return Shard(number, len(self.parts)).file(self.directory, "rows")

    def _scores(self, number: int) -> Path:
        return Shard(number, len(self.parts)).file(self.directory, "scores")

    def run(self, number: int) -> None:
        """Search a shard's passages for all queries.

        Raises:
            ArtifactError: This machine has another dataset or other features.
        """
        queries, features = _opened(self)
        part = self.parts[number]
        k = min(self.k, part.stop - part.start)
        rows, scores = exact_top_k(queries, features.passages[part], k, features.similarity, device=self.device)
        for path, array in ((self._scores(number), scores), (self.path(number), rows + part.start)):
            with whole_file(path, shared=True) as partial:
                save_array(partial, array)

    def merge(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores ``(n, k)`` of the best of all shards, as of :func:`exact_top_k`.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        shapes = [(None, min(self.k, part.stop - part.start)) for part in self.parts]
        rows_of = [load_array(self.path(number), shape, np.int64) for number, shape in enumerate(shapes)]
        scores_of = [load_array(self._scores(number), shape, np.float32) for number, shape in enumerate(shapes)]
        n = len(rows_of[0])
        rows, scores = np.empty((n, self.k), dtype=np.int64), np.empty((n, self.k), dtype=np.float32)
        for block in blocks(n, _QUERIES):
            candidates = np.hstack([shard[block] for shard in rows_of])  # (b, shards * k)
            candidate_scores = np.hstack([shard[block] for shard in scores_of])
            rows[block], scores[block], _ = merge_top_k(candidates, candidate_scores, self.k)
        return rows, scores


def judged_queries(dataset: Dataset, split: str) -> list[str]:
    """Ids of the queries of a split that have a relevant passage.

    Raises:
        GnnRetrievalError: There is none.
    """
    judged = dataset.split(split)
    ids = [query for query, grades in judged.items() if any(grade > 0 for grade in grades.values())]
    if not ids:
        raise GnnRetrievalError(f"{dataset.path}: split {split!r} has no query with a relevant passage.")
    return ids


@lru_cache(maxsize=1)
def _opened(stage: NeighborShards) -> tuple[NDArray[np.float16], Features]:
    """The queries' vectors ``(n, d)`` and the features, opened once in a process."""
    features = open_features(stage.features)
    if features.hash != stage.features_hash:
        raise ArtifactError(
            f"{stage.features}: this machine finds other features there. Use storage that all workers see."
        )
    return features.queries[features.rows_of(judged_queries(stage.dataset.open(), stage.split))], features
