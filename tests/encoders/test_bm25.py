import math

import numpy as np
import pytest

from gnnretrieval.encoders import BM25

TEXTS = ["red apples and green apples", "a green tree", "the red car drives", "blue water", "the tree of red apples"]


@pytest.fixture(scope="module")
def bm25() -> BM25:
    return BM25(TEXTS)


def test_a_score_by_hand(bm25):
    """Lucene's BM25 with k1 = 1.5 and b = 0.75, without stop words: "tree" is in 2 of 5 texts of 13 words in all."""
    idf = math.log(1 + (5 - 2 + 0.5) / (2 + 0.5))
    for row, length in ((1, 2), (4, 3)):
        expected = idf * 1 / (1 + 1.5 * (1 - 0.75 + 0.75 * length / (14 / 5)))
        assert bm25.scores("tree")[row] == pytest.approx(expected, rel=1e-5)
    assert bm25.scores("tree")[[0, 2, 3]].tolist() == [0, 0, 0]


def test_words_are_stemmed_and_case_and_stop_words_count_for_nothing(bm25):
    assert bm25.scores("APPLE").tolist() == bm25.scores("apples of the").tolist()
    assert bm25.scores("driving")[2] > 0


def test_top_k_is_by_score_then_row_without_passages_that_share_no_word(bm25):
    rows, scores = bm25.top_k("green tree", 5)
    assert rows.tolist() == [1, 4, 0]
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    assert scores.tolist() == bm25.scores("green tree")[rows].tolist()
    assert bm25.top_k("green tree", 2)[0].tolist() == [1, 4]
    assert bm25.top_k("green tree", 100)[0].tolist() == [1, 4, 0]


def test_equal_scores_are_ranked_by_row_at_the_cut_too():
    bm25 = BM25(["same words", "other things", *["same words"] * 30])
    assert bm25.top_k("words", 5)[0].tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("query", ["nothing here matches", "the of and", "", "?!"])
def test_a_query_that_shares_no_word_finds_nothing(bm25, query):
    assert bm25.scores(query).tolist() == [0] * 5
    assert bm25.top_k(query, 3)[0].tolist() == []
    assert bm25.shares_of_best(query, [0, 1]).tolist() == [0, 0]


def test_shares_are_of_the_best_score_over_all_passages(bm25):
    scores = bm25.scores("red apples")
    shares = bm25.shares_of_best("red apples", np.array([2, 0], dtype=np.uint32))
    np.testing.assert_allclose(shares, [scores[2] / scores.max(), scores[0] / scores.max()])
    assert bm25.shares_of_best("red apples", range(5)).max() == 1


def test_passages_without_a_word_score_zero():
    bm25 = BM25(["", "the", "water"])
    assert bm25.top_k("water", 3)[0].tolist() == [2]
