"""What a GNN-encoder learns from: the labels of the graph's queries, and denoised positives and negatives (§3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.mining import sample_hard_negatives
from gnnretrieval.mining.examples import Examples

ENOUGH = 200  # labelled queries that a dual-encoder did not learn from, to train a GNN on


class LearnedFrom(NamedTuple):
    """Positives and negatives of the graph's queries, by row.

    Attributes:
        labels: ``(L, 2)`` positive pairs (query row, passage row), sorted.
        indptr: ``(n + 1,)``: query ``q`` has the mined negatives ``negatives[indptr[q]:indptr[q + 1]]``.
        negatives: ``(N,)`` passage rows.
        taught: ``(n,)`` True for queries that are trained on where they have a label; the others are in the graph only.
    """

    labels: Rows
    indptr: Rows
    negatives: Rows
    taught: NDArray[np.bool_]

    @classmethod
    def of(
        cls, store: Graph, examples: Sequence[Examples] = (), taught: NDArray[np.bool_] | None = None
    ) -> LearnedFrom:
        """The labels of ``store``, with what was mined for its queries; examples of other queries are left out.

        Args:
            store: The graph.
            examples: What was mined.
            taught: As the attribute; None: all.

        Raises:
            GnnRetrievalError: none of the examples is of a query of the graph.
        """
        n, m = store.num_queries, store.num_passages
        positive, negative = [store.labels], [np.empty((0, 2), dtype=np.int64)]
        with store.texts() as texts:
            for part in examples:
                found = list(part.examples())
                query_row = texts.rows_of_queries([one.query for one in found])
                of_graph = [one for one in found if one.query in query_row]
                if not of_graph:
                    raise GnnRetrievalError(
                        f"{part.path}: none of these examples is of a query of {store.path}. Mine them from the "
                        "dataset and split that the graph was built from."
                    )
                named = {c.passage for one in of_graph for c in (*one.positives, *one.negatives)}
                passage_row = texts.rows_of_passages(sorted(named))
                for kept, name in ((positive, "positives"), (negative, "negatives")):
                    pairs = [
                        (query_row[one.query], passage_row[candidate.passage])
                        for one in of_graph
                        for candidate in getattr(one, name)
                        if candidate.passage in passage_row
                    ]
                    kept.append(np.array(pairs, dtype=np.int64).reshape(-1, 2))
        labels = _pairs(np.unique(_keys(np.concatenate(positive), m)), m)
        mined = _pairs(np.setdiff1d(_keys(np.concatenate(negative), m), _keys(labels, m)), m)
        indptr = np.searchsorted(mined[:, 0], np.arange(n + 1))
        taught = np.ones(n, dtype=bool) if taught is None else taught
        return cls(labels, indptr, np.ascontiguousarray(mined[:, 1]), taught)

    def among(self, shown: NDArray[np.bool_]) -> LearnedFrom:
        """Without the positives of queries that are not ``shown``, which are not trained on."""
        return self._replace(labels=self.labels[shown[self.labels[:, 0]]])

    def draw_negatives(
        self, neighbors: NDArray[np.uint32], queries: Rows, count: int, rng: np.random.Generator
    ) -> Rows:
        """Up to ``count`` of each query's mined negatives; of a query without any, neighbours that are not positives.

        Returns:
            Passage rows, sorted and without duplicates.
        """
        counts = self.indptr[queries + 1] - self.indptr[queries]
        without = queries[counts == 0]
        drawn = [sample_hard_negatives(neighbors, without, self.labels, count, rng)] if len(without) else []
        for query in queries[counts > 0].tolist():
            mined = self.negatives[self.indptr[query] : self.indptr[query + 1]]
            drawn.append(rng.permutation(mined)[:count])
        return np.unique(np.concatenate(drawn)) if drawn else np.empty(0, dtype=np.int64)


def unseen_queries(store: Graph, features: Features, which: Literal["auto", "all", "unseen"]) -> NDArray[np.bool_]:
    """The graph's queries to train on and to choose by ``(n,)``: where there are enough, those new to the dual-encoder.

    A dual-encoder ranks what it learned from better than what it will be asked. A GNN that trains on such queries finds
    little to mend, and learns to leave passages as they are.

    Args:
        store: The graph.
        features: What it was built from, which say what their encoder learned from.
        which: ``unseen``: none that it learned from; ``auto``: so where at least :data:`ENOUGH` labelled ones are left.

    Raises:
        GnnRetrievalError: with ``unseen``, none is left.
    """
    seen_ids = frozenset() if which == "all" else features.learned_from()
    with store.texts() as texts:
        unseen = np.array([id_ not in seen_ids for id_ in texts.query_ids()], dtype=bool)
    left = int(unseen[np.unique(store.labels[:, 0])].sum())
    if which == "unseen" and not left:
        raise GnnRetrievalError(
            f"{store.path}: the dual-encoder learned from every labelled query of this graph, and none is left to "
            "train on. Train it on a share of them (query_share, below 1), or train on all (--learn-from all)."
        )
    return unseen if which == "unseen" or left >= ENOUGH else np.ones(store.num_queries, dtype=bool)


def probability_column(store: Graph) -> int:
    """Which of the stored cheap edge features is the cross-encoder's probability.

    Raises:
        GnnRetrievalError: none is.
    """
    names = list(store.config["edge_features"])
    if "probability" not in names:
        raise GnnRetrievalError(
            f"{store.path}: its edges have no probability to distil. Build the graph with a cross-encoder and "
            f"probability among its edge features (--edge-features {','.join([*names, 'probability'])})."
        )
    return names.index("probability")


def _keys(pairs: Rows, num_passages: int) -> Rows:
    keys: Rows = pairs[:, 0] * num_passages + pairs[:, 1]
    return keys


def _pairs(keys: Rows, num_passages: int) -> Rows:
    return np.stack(np.divmod(keys, num_passages), axis=1)
