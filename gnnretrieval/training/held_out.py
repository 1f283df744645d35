"""The questions to choose by: the dev split or, where there is none, training questions held out of the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.mask import mask_queries
from gnnretrieval.graph.store import GraphStore

DEV_NAMES = ("dev", "validation", "val")
HELD_OUT = 0.1  # share of the training queries where there is no dev split


class HeldOut(NamedTuple):
    """Questions that training does not learn from.

    Attributes:
        name: The split's name, or ``"held-out training queries"``.
        queries: ``(q, d)`` features.
        relevant: Rows of each one's relevant passages.
        hidden: ``(n,)`` True for graph queries kept out of training and of its graph; None: none are.
    """

    name: str
    queries: NDArray[np.floating]
    relevant: list[list[int]]
    hidden: NDArray[np.bool_] | None

    @property
    def is_split(self) -> bool:
        """Whether these are the queries of a split of the dataset."""
        return self.name in DEV_NAMES


def dev_split(dataset: Dataset) -> str | None:
    """The split to choose by: the first of ``dev``, ``validation`` and ``val``; None where there is none."""
    return next((name for name in DEV_NAMES if name in dataset.splits), None)


def held_out_queries(store: GraphStore, dataset: Dataset, features: Features, seed: int) -> HeldOut:
    """The dev split's questions; without one, a tenth of the graph's questions, all of a passage together.

    Raises:
        GnnRetrievalError: the dev split has no relevant passage, or the graph is too small to hold questions out.
    """
    split = dev_split(dataset)
    if split is None:
        rng = np.random.default_rng([seed, 0, 1])  # none of the epochs' own
        labelled = np.unique(store.labels[:, 0])
        labels = np.stack([np.searchsorted(labelled, store.labels[:, 0]), store.labels[:, 1]], axis=1)
        chosen = mask_queries(len(labelled), labels, HELD_OUT, "passage", rng)
        hidden = np.zeros(store.num_queries, dtype=bool)
        hidden[labelled[chosen]] = True
        rows = np.flatnonzero(hidden)
        if chosen.all():
            raise GnnRetrievalError(
                f"{dataset.path}: there is no dev split, and too few training queries to hold some out: add one."
            )
        relevant = _relevant(store, hidden)  # by query row
        return HeldOut("held-out training queries", store.query_features[rows], [*relevant.values()], hidden)
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    judged = {
        query: [row_of[passage] for passage, relevance in passages.items() if relevance > 0]
        for query, passages in dataset.split(split).items()
    }
    judged = {query: passages for query, passages in judged.items() if passages}
    if not judged:
        raise GnnRetrievalError(f"{dataset.path}: no query of split {split!r} has a relevant passage to choose by.")
    with store.texts() as texts:
        shared = np.array([query in judged for query in texts.query_ids()])
    if shared.all():
        raise GnnRetrievalError(f"{store.path}: built from the queries of split {split!r}, which are to choose by.")
    vectors = features.queries[features.rows_of(judged)]
    # A query of both splits must not be seen while choosing.
    return HeldOut(split, vectors, list(judged.values()), shared if shared.any() else None)


def _relevant(store: GraphStore, queries: NDArray[np.bool_]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for query, passage in store.labels[queries[store.labels[:, 0]]].tolist():
        found.setdefault(query, []).append(passage)
    return found
