"""The text pairs of a graph's edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.graph.subgraph import Rows


class Pairs(NamedTuple):
    """The text pairs of a graph's edges.

    Attributes:
        texts: Passages and queries by row.
        neighbors: ``(n, k)`` passage rows.
    """

    texts: TextStore
    neighbors: NDArray[np.uint32]

    def of(self, edges: Rows) -> tuple[list[str], list[str], NDArray[np.int64]]:
        """Query texts and passage texts of some edges, each once, and the pairs ``(E, 2)`` as positions in the two."""
        query_rows, passage_rows = edges // self.neighbors.shape[1], self.neighbors.ravel()[edges]
        queries, first = np.unique(query_rows, return_inverse=True)
        passages, second = np.unique(passage_rows, return_inverse=True)
        return (
            self.texts.texts_of_queries(queries.tolist()),
            self.texts.texts_of_passages(passages.tolist()),
            np.stack([first, second], axis=1),
        )
