"""Training data of a GNN-encoder: labels of the graph's queries, and denoised positives and negatives (§3.4)."""

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

ENOUGH = 200  # minimum number of labelled queries new to the dual-encoder, for learn_from = auto


class LearnedFrom(NamedTuple):
    """Positives and negatives of the graph's queries, by row.

    Attributes:
        labels: ``(L, 2)`` positive pairs (query row, passage row), sorted.
        indptr: ``(n + 1,)``; query ``q`` has the mined negatives ``negatives[indptr[q]:indptr[q + 1]]``.
        negatives: ``(N,)`` passage rows.
        taught: ``(n,)`` bool, True for queries to train on if they have a label; the others are only in the graph.
    """

    labels: Rows
    indptr: Rows
    negatives: Rows
    taught: NDArray[np.bool_]

    @classmethod
    def of(
        cls, store: Graph, examples: Sequence[Examples] = (), taught: NDArray[np.bool_] | None = None
    ) -> LearnedFrom:
        """The labels of ``store`` with the mined examples of its queries; examples of other queries are left out.

        Args:
            store: The graph.
            examples: Mined examples.
            taught: As the attribute; None: all queries.

        Raises:
            GnnRetrievalError: An artifact of examples has none for a query of the graph.
        """
        n, m = store.num_queries, store.num_passages
        positive, negative = [store.labels], [np.empty((0, 2), dtype=np.int64)]
        with store.texts() as texts:
            for part in examples:
                mined = list(part.examples())
                query_row = texts.rows_of_queries([example.query for example in mined])
                of_graph = [example for example in mined if example.query in query_row]
                if not of_graph:
                    raise GnnRetrievalError(
                        f"{part.path}: none of these examples has a query of {store.path}. Mine them from the dataset "
                        "and split of the graph."
                    )
                named = {c.passage for example in of_graph for c in (*example.positives, *example.negatives)}
                passage_row = texts.rows_of_passages(sorted(named))
                for kept, name in ((positive, "positives"), (negative, "negatives")):
                    pairs = [
                        (query_row[example.query], passage_row[candidate.passage])
                        for example in of_graph
                        for candidate in getattr(example, name)
                        if candidate.passage in passage_row
                    ]
                    kept.append(np.array(pairs, dtype=np.int64).reshape(-1, 2))
        # what any source calls positive for a query is not its negative
        labels = _pairs(np.unique(_keys(np.concatenate(positive), m)), m)
        negatives = _pairs(np.setdiff1d(_keys(np.concatenate(negative), m), _keys(labels, m)), m)
        indptr = np.searchsorted(negatives[:, 0], np.arange(n + 1))
        taught = np.ones(n, dtype=bool) if taught is None else taught
        return cls(labels, indptr, np.ascontiguousarray(negatives[:, 1]), taught)

    def among(self, shown: NDArray[np.bool_]) -> LearnedFrom:
        """The same without the labels of queries where ``shown`` ``(n,)`` is False."""
        return self._replace(labels=self.labels[shown[self.labels[:, 0]]])

    def draw_negatives(
        self, neighbors: NDArray[np.uint32], queries: Rows, count: int, rng: np.random.Generator
    ) -> Rows:
        """Sample up to ``count`` mined negatives of each query, or irrelevant neighbours if none were mined for it.

        Returns:
            Sorted passage rows of the whole batch, without duplicates.
        """
        counts = self.indptr[queries + 1] - self.indptr[queries]
        without = queries[counts == 0]
        drawn = [sample_hard_negatives(neighbors, without, self.labels, count, rng)] if len(without) else []
        for query in queries[counts > 0].tolist():
            mined = self.negatives[self.indptr[query] : self.indptr[query + 1]]
            drawn.append(rng.permutation(mined)[:count])
        return np.unique(np.concatenate(drawn)) if drawn else np.empty(0, dtype=np.int64)


def new_queries(store: Graph, features: Features) -> NDArray[np.bool_]:
    """Mask ``(n,)`` of the graph's queries that the dual-encoder of these features did not learn from."""
    seen = features.learned_from()
    with store.texts() as texts:
        return np.array([id_ not in seen for id_ in texts.query_ids()], dtype=bool)


def unseen_queries(store: Graph, features: Features, which: Literal["auto", "all", "unseen"]) -> NDArray[np.bool_]:
    """Choose the graph's queries to train on, ``(n,)`` bool: all, or those that the dual-encoder did not learn from.

    A dual-encoder ranks its training queries better than new ones. A GNN trained on them finds little to improve and
    learns to leave passages unchanged.

    Args:
        store: The graph.
        features: The features of the graph, which record the training queries of their encoder.
        which: ``all``; ``unseen``: queries that the encoder did not learn from; ``auto``: ``unseen`` if at least
            :data:`ENOUGH` of these have a label, else ``all``.

    Raises:
        GnnRetrievalError: ``which`` is ``unseen``, and no labelled query is unseen.
    """
    unseen = new_queries(store, features) if which != "all" else np.ones(store.num_queries, dtype=bool)
    left = int(unseen[np.unique(store.labels[:, 0])].sum())
    if which == "unseen" and not left:
        raise GnnRetrievalError(
            f"{store.path}: the dual-encoder learned from every labelled query of this graph. Train the dual-encoder "
            "on a share of them (query_share below 1), or train the GNN on all (--learn-from all)."
        )
    return unseen if which == "unseen" or left >= ENOUGH else np.ones(store.num_queries, dtype=bool)


def probability_column(store: Graph) -> int:
    """Column of the cross-encoder's probability among the stored cheap edge features.

    Raises:
        GnnRetrievalError: The graph does not have it.
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
