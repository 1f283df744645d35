"""Stores made by hand: every array is given, so that each figure can be worked out on paper."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.data.text_store import PassageRow, QueryRow, TextStore
from gnnretrieval.graph.edges.arrays import EdgeArrays
from gnnretrieval.graph.store import TEXTS, Graph, passage_side


@pytest.fixture
def hand_made(tmp_path: Path) -> Callable[..., Graph]:
    """``hand_made(neighbors, queries=…, passages=…, labels=…)`` is a store with these arrays.

    Features default to random ones, scores to 0.9, 0.8, … by rank, texts to ``passage 0`` and ``query 0``.
    """

    def make(
        neighbors: Sequence[Sequence[int]],
        passages: Sequence[Sequence[float]] | int = 8,
        queries: Sequence[Sequence[float]] | None = None,
        labels: Sequence[tuple[int, int]] = (),
        scores: Sequence[Sequence[float]] | None = None,
        passage_texts: Sequence[str] | None = None,
        query_texts: Sequence[str] | None = None,
        dataset: Path | None = None,
    ) -> Graph:
        found = np.array(neighbors, dtype=np.uint32)
        n, k = found.shape
        rng = np.random.default_rng(0)
        if isinstance(passages, int):
            passages = rng.standard_normal((passages, 4))
        m, d = np.shape(passages)
        path = tmp_path / "graph"
        path.mkdir(exist_ok=True)
        with TextStore(path / TEXTS, create=True) as texts:
            texts.add_passages(
                PassageRow(row, f"p{row}", "", passage_texts[row] if passage_texts else f"passage {row}")
                for row in range(m)
            )
            texts.add_queries(
                QueryRow(row, f"q{row}", query_texts[row] if query_texts else f"query {row}", "train")
                for row in range(n)
            )
            texts.add_qrels((query, passage, 1) for query, passage in labels)
        meta = {
            "num_passages": m,
            "num_queries": n,
            "edge_vectors": None,
            "similarity": {"normalize": True, "scale": 20.0},
            "encoder": {"checkpoint": "none"},
            "config": {"k": k, "edge_features": ["score"], "split": "train"},
            "inputs": {},
            "dataset": {"qrels": "qrels", "where": {}},
            "made_from": {"dataset": str(dataset)} if dataset else {},
        }
        store = Graph(path, meta)
        indptr, edges = passage_side(found, m)
        store.__dict__.update(  # what would be opened from files
            _neighbors=found,
            scores=np.array(scores if scores is not None else [[0.9 - 0.1 * r for r in range(k)]] * n, np.float32),
            passage_features=np.asarray(passages, dtype=np.float16),
            query_features=np.asarray(rng.standard_normal((n, d)) if queries is None else queries, dtype=np.float16),
            indptr=indptr,
            edges=edges,
            edge_arrays=EdgeArrays(np.zeros((n, k, 1), np.float16), None, None, None, None),
        )
        return store

    return make
