import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.encoders import Similarity, exact_search, exact_top_k
from gnnretrieval.encoders.exact_search import merge_top_k, pair_scores
from gnnretrieval.errors import GnnRetrievalError

DOT = Similarity(normalize=False, scale=1.0)
COSINE = Similarity(normalize=True, scale=20.0)


def brute_force(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores), axis=1)[:, :k]
    return rows, np.take_along_axis(scores, rows, 1)


@given(n=st.integers(0, 6), m=st.integers(1, 30), d=st.integers(1, 5), seed=st.integers(0, 999), data=st.data())
def test_it_equals_numpy_for_either_similarity(n, m, d, seed, data):
    k = data.draw(st.integers(1, m))
    rng = np.random.default_rng(seed)
    queries, passages = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    for similarity in (DOT, COSINE):
        rows, scores = exact_top_k(queries, passages, k, similarity)
        assert (rows.dtype, scores.dtype, rows.shape) == (np.int64, np.float32, (n, k))
        products = similarity.prepare_array(queries) @ similarity.prepare_array(passages).T
        _, expected = brute_force(products, k)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(products, rows, 1), scores, rtol=1e-4, atol=1e-6)
        assert all(len(set(row)) == k for row in rows.tolist())


@given(n=st.integers(1, 3), m=st.integers(1, 40), seed=st.integers(0, 999), data=st.data())
def test_equal_scores_are_ranked_by_row_at_the_cut_too(n, m, seed, data):
    """Whole numbers below 3 tie often, and their products are exact."""
    k = data.draw(st.integers(1, m))
    rng = np.random.default_rng(seed)
    queries, passages = rng.integers(0, 3, (n, 2)), rng.integers(0, 3, (m, 2))
    rows, scores = exact_top_k(queries.astype(np.float32), passages.astype(np.float32), k, DOT)
    expected_rows, expected_scores = brute_force((queries @ passages.T).astype(np.float32), k)
    assert scores.tolist() == expected_scores.tolist()
    assert rows.tolist() == expected_rows.tolist()


@given(n=st.integers(1, 3), m=st.integers(1, 40), seed=st.integers(0, 999), data=st.data())
def test_another_order_of_equal_scores_says_which_are_found(n, m, seed, data):
    k = data.draw(st.integers(1, m))
    rng = np.random.default_rng(seed)
    queries, passages, place = rng.integers(0, 3, (n, 2)), rng.integers(0, 3, (m, 2)), rng.permutation(m)
    asked = []

    def ties(rows):
        asked.append(rows)
        return np.where(rows < 0, m, place[rows])

    rows, _ = exact_top_k(queries.astype(np.float32), passages.astype(np.float32), k, DOT, ties=ties)
    scores = queries @ passages.T
    for own, of_query in zip(rows, scores, strict=True):
        assert set(own.tolist()) == set(np.lexsort((place, -of_query))[:k].tolist())
        assert of_query[own].tolist() == sorted(of_query.tolist(), reverse=True)[:k]
    ordered = -np.sort(-scores, axis=1)
    assert bool(asked) == (k < m and bool((ordered[:, k - 1] == ordered[:, k]).any())), "it costs nothing otherwise"


def test_blocks_change_no_byte(monkeypatch):
    rng = np.random.default_rng(0)
    queries, passages = rng.normal(size=(50, 8)), rng.normal(size=(200, 8))
    whole_rows, whole_scores = exact_top_k(queries, passages, 10, COSINE)
    done = []
    monkeypatch.setattr(exact_search, "_PASSAGES", 64)
    monkeypatch.setattr(exact_search, "_QUERIES", 7)
    rows, scores = exact_top_k(queries, passages, 10, COSINE, advance=done.append)
    assert done == [64, 64, 64, 8]
    assert rows.tolist() == whole_rows.tolist()
    assert scores.tobytes() == whole_scores.tobytes()


@pytest.mark.parametrize("reduced", [0, 2**60])
def test_a_score_is_a_function_of_its_two_vectors_alone(monkeypatch, reduced):
    """Also where candidates are found in bfloat16, and where half of the passages come later."""
    monkeypatch.setattr(exact_search, "_REDUCED", reduced)
    rng = np.random.default_rng(1)
    queries, passages = rng.normal(size=(33, 48)).astype(np.float16), rng.normal(size=(700, 48)).astype(np.float16)
    passages[400:450] = passages[:50]
    rows, scores = exact_top_k(queries, passages, 9, COSINE)
    assert scores.tobytes() == pair_scores(queries[:, None], passages[rows], COSINE).tobytes()
    products = COSINE.prepare_array(queries).astype(np.float64) @ COSINE.prepare_array(passages).astype(np.float64).T
    np.testing.assert_allclose(scores, np.sort(products)[:, ::-1][:, :9], rtol=1e-6)
    early, late = (exact_top_k(queries, part, 9, COSINE) for part in (passages[:350], passages[350:]))
    merged_rows, merged_scores, _ = merge_top_k(np.hstack([early[0], late[0] + 350]), np.hstack([early[1], late[1]]), 9)
    assert merged_rows.tolist() == rows.tolist()
    assert merged_scores.tobytes() == scores.tobytes()


def test_products_that_hide_the_best_are_found_out(monkeypatch):
    """400 equal passages fill every list of candidates: the lowest rows among them are right."""
    passages = np.ones((500, 4), dtype=np.float32)
    passages[::5] *= 2
    rows, scores = exact_top_k(np.ones((2, 4)), passages, 120, DOT)
    assert rows[0].tolist() == [*range(0, 500, 5), *[row for row in range(26) if row % 5][:20]]
    assert scores[0].tolist() == [8.0] * 100 + [4.0] * 20


def test_through_groups_of_columns_the_best_are_the_same():
    scores = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 64 * 40)).astype(np.float32))
    values, columns = exact_search._top(scores, 7)
    assert torch.equal(values, scores.topk(7).values)
    assert torch.equal(scores.gather(1, columns), values)


def test_a_search_that_was_cut_off_goes_on(monkeypatch, tmp_path):
    rng = np.random.default_rng(3)
    queries, passages = rng.normal(size=(20, 8)), rng.normal(size=(300, 8))
    rows, scores = exact_top_k(queries, passages, 6, COSINE)
    monkeypatch.setattr(exact_search, "_PASSAGES", 32)
    monkeypatch.setattr(exact_search, "_SAVE_EVERY", 0.0)

    def cut_off(count: int) -> None:
        done.append(count)
        if sum(done) >= 200:
            raise KeyboardInterrupt

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        exact_top_k(queries, passages, 6, COSINE, advance=cut_off, resume=tmp_path)
    done = []
    again = exact_top_k(queries, passages, 6, COSINE, advance=done.append, resume=tmp_path)
    assert done[0] == 192
    assert sum(done) == 300
    assert again[0].tolist() == rows.tolist()
    assert again[1].tobytes() == scores.tobytes()


def test_more_passages_than_a_block_are_searched_whole():
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(65536 * 2 + 100, 2)).astype(np.float16)
    queries = rng.normal(size=(3, 2)).astype(np.float16)
    passages[[5, 70_000, 131_100]] = 50 * queries
    rows, scores = exact_top_k(queries, passages, 5, DOT)
    expected_rows, expected_scores = brute_force(queries.astype(np.float32) @ passages.astype(np.float32).T, 5)
    assert rows[:, 0].tolist() == expected_rows[:, 0].tolist()
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_memory_mapped_float16_is_searched_in_float32(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "passages.npy", rng.normal(size=(30, 4)).astype(np.float16))
    passages = np.load(tmp_path / "passages.npy", mmap_mode="r")
    rows, scores = exact_top_k(passages[:3], passages, 1, COSINE)
    assert rows.ravel().tolist() == [0, 1, 2]
    np.testing.assert_allclose(scores.ravel(), 1, rtol=1e-6)


@pytest.mark.parametrize("k", [-1, 0, 6])
def test_a_k_that_is_not_there_is_an_error_that_says_which_are(k):
    with pytest.raises(GnnRetrievalError, match=f"k is {k}, and there are 5 passages: give a k from 1 to 5"):
        exact_top_k(np.ones((1, 2)), np.ones((5, 2)), k, DOT)
