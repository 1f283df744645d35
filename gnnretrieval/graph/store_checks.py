"""What the arrays of a graph store must be before native code indexes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.edges.labels import BEFORE_LABELS
from gnnretrieval.storage.array_checks import require_offsets, require_rows
from gnnretrieval.storage.arrays import damaged

if TYPE_CHECKING:
    from gnnretrieval.graph.store import Graph


def check_arrays(store: Graph) -> None:
    """Refuse arrays that do not fit each other, or have a row of a passage, query or edge that does not exist.

    Raises:
        ArtifactError: one is damaged, of another shape or type, or has a row out of range.
    """
    for name in ("scores", "query_features", "indptr", "edges", "edge_arrays"):
        getattr(store, name)  # opened and checked against the others
    require_rows(store._neighbors, store.num_passages, store.path / "neighbors.npy")
    require_offsets(store.indptr, store._neighbors.size, store.path / "passage_indptr.npy")
    require_rows(store.edges, store._neighbors.size, store.path / "passage_edges.npy")
    _check_before_labels(store)
    with store.texts() as texts:
        passages, queries = texts.counts()
        file = texts.path
    if (passages, queries) != (store.num_passages, store.num_queries):
        raise ArtifactError(
            f"{file}: texts of {passages:,} passages and {queries:,} queries, and the arrays are of "
            f"{store.num_passages:,} and {store.num_queries:,}. Delete the graph and build it again."
        )


def _check_before_labels(store: Graph) -> None:
    """Check the retrieved lists that label edges changed, if there are any."""
    if not (store.path / f"{BEFORE_LABELS[0]}.npy").is_file():
        return
    queries = store.array(BEFORE_LABELS[0], (None,), np.int64)
    before = store.array(BEFORE_LABELS[1], (len(queries), store.stride), np.uint32)
    store.array(BEFORE_LABELS[2], before.shape, np.float32)
    require_rows(queries, store.num_queries, store.path / f"{BEFORE_LABELS[0]}.npy")
    require_rows(before, store.num_passages, store.path / f"{BEFORE_LABELS[1]}.npy")
    if (np.diff(queries) <= 0).any():
        raise damaged(store.path / f"{BEFORE_LABELS[0]}.npy", "its rows are not in order")
