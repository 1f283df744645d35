"""Runs by words, terms and tokens: where equal scores do not all fit, the order of ids decides, as everywhere."""

from types import SimpleNamespace

import numpy as np
import pytest

from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.postings import Postings
from gnnretrieval.encoders.sparse_features import SparseFeatures
from gnnretrieval.index.late_search import late_run
from gnnretrieval.index.search import bm25_run
from gnnretrieval.index.sparse_search import sparse_run

IDS = ["b", "d", "a", "c"]  # passages of equal score, in the order of their rows


def ids(run):
    return [scored.passage_id for scored in run["q"]]


def test_a_run_by_bm25_keeps_the_highest_ids_of_equal_scores():
    bm25 = BM25(["the same word"] * len(IDS))
    assert ids(bm25_run(bm25, {"q": "word"}, IDS, 2)) == ["d", "c"]


def test_a_run_by_terms_keeps_the_highest_ids_of_equal_scores(monkeypatch):
    postings = Postings(np.array([0, 4]), np.arange(4, dtype=np.int32), np.ones(4, dtype=np.float32))
    features = SparseFeatures.__new__(SparseFeatures)
    features.meta = {"num_passages": len(IDS)}
    monkeypatch.setattr(SparseFeatures, "postings", postings)
    monkeypatch.setattr(features, "queries", lambda: (np.array([0, 1]), np.array([0]), np.ones(1)))
    monkeypatch.setattr(features, "rows_of", lambda query_ids: np.array([0]))
    monkeypatch.setattr(features, "passage_ids", lambda: IDS)
    assert ids(sparse_run(features, ["q"], 2)) == ["d", "c"]


@pytest.mark.parametrize("matches_same", [False, True])
def test_a_run_by_tokens_keeps_the_highest_ids_of_equal_scores(matches_same):
    features = SimpleNamespace(
        tokens=np.ones((len(IDS), 2), dtype=np.float16),
        token_starts=np.arange(len(IDS) + 1),
        token_ids=np.zeros(len(IDS), dtype=np.int64),
        query_tokens=np.ones((1, 1, 2), dtype=np.float32),
        query_token_ids=np.zeros((1, 1), dtype=np.int64),
        matches_same=matches_same,
        passage_ids=lambda: IDS,
        rows_of=lambda query_ids: np.array([0]),
    )
    assert ids(late_run(features, ["q"], 2)) == ["d", "c"]
