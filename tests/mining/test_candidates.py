import numpy as np

from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.mining import candidates
from gnnretrieval.mining.candidates import open_texts, search
from gnnretrieval.storage.places import scratch


def test_bm25_finds_at_most_k_and_only_what_shares_a_word(dataset, tmp_path):
    scratch(tmp_path / "half").mkdir(parents=True)
    with open_texts(dataset, tmp_path / "half") as texts:
        found = list(search(texts, [0, 1], 3, tmp_path / "half", None, "cpu"))
    bm25 = BM25([passage.full_text for passage in dataset.passages()])
    for (rows, scores), query in zip(found, ("red apple", "blue whale"), strict=True):
        expected = bm25.top_k(query, 3)
        assert rows.tolist() == expected[0].tolist()
        assert np.array_equal(scores, expected[1])
    assert [len(rows) for rows, _ in found] == [3, 1]


def test_queries_searched_in_blocks_find_the_same(tiny_features, tmp_path, monkeypatch):
    scratch(tmp_path / "half").mkdir(parents=True)
    queries = [5, 70, 3, 9, 11]
    monkeypatch.setattr(candidates, "_SCORES", 2 * 7)
    with open_texts(None, tmp_path / "half", tiny_features) as texts:
        found = list(search(texts, queries, 7, tmp_path / "half", tiny_features, "cpu"))
    rows, scores = exact_top_k(tiny_features.queries[queries], tiny_features.passages, 7, tiny_features.similarity)
    assert np.array_equal(np.stack([one for one, _ in found]), rows)
    assert np.array_equal(np.stack([one for _, one in found]), scores)
