"""A judge's probabilities of pairs in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.pair_shards import PairShards, Texts
from gnnretrieval.storage.arrays import load_array


@dataclass(frozen=True)
class JudgeShards(PairShards):
    """Pairs of queries and passages, each shard with their probabilities in float32.

    Attributes:
        text_store: File of the texts.
        pairs: File of the pairs ``(P, 2)`` int64, query and passage rows, in the order in which they are read.
    """

    text_store: Path
    pairs: Path

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        stage = super().moved(input_at, directory)
        return replace(stage, text_store=input_at(self.text_store), pairs=input_at(self.pairs))

    @contextmanager
    def texts(self) -> Iterator[Callable[[slice], Texts]]:
        """As :meth:`PairShards.texts`."""
        pairs = load_array(self.pairs, (self.total, 2), np.int64)
        with TextStore(self.text_store) as texts:
            yield lambda part: texts_of(pairs[part], texts)

    def merge(self) -> NDArray[np.float32]:
        """The probability of each pair ``(P,)``.

        Raises:
            ArtifactError: A shard's file is damaged.
        """
        return np.concatenate([self.probabilities_of(number) for number in range(len(self.parts))])


def texts_of(pairs: NDArray[np.int64], texts: TextStore) -> Texts:
    """Query texts and passage texts of ``pairs`` ``(b, 2)``, each once, and the pairs as positions in the two."""
    queries, first = np.unique(pairs[:, 0], return_inverse=True)
    passages, second = np.unique(pairs[:, 1], return_inverse=True)
    return (
        texts.texts_of_queries(queries.tolist()),
        texts.texts_of_passages(passages.tolist()),
        np.stack([first, second], axis=1),
    )
