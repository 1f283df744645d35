import numpy as np
import pytest

from gnnretrieval.graph.inspection import near_duplicates as module
from gnnretrieval.graph.inspection.near_duplicates import duplicate_figures, similar_passages, similar_queries


def pairs_of(found) -> set[tuple[int, int]]:
    return set(zip(found.first.tolist(), found.second.tolist(), strict=True))


def clustered(count: int, seed: int = 0) -> np.ndarray:
    """Vectors among which there are near-duplicates."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((count // 3, 16))
    return centres[rng.integers(len(centres), size=count)] + 0.1 * rng.standard_normal((count, 16))


def cosines(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float16).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


@pytest.mark.parametrize("block", [10, 1000])
def test_queries_that_share_a_first_or_second_passage_are_compared_with_brute_force_s_result(
    hand_made, monkeypatch, block
):
    rng = np.random.default_rng(1)
    queries = clustered(60)
    neighbors = np.array([rng.permutation(12)[:3] for _ in range(60)])
    store = hand_made(neighbors, passages=clustered(12), queries=queries, scores=rng.random((60, 3)))
    monkeypatch.setattr(module, "_FLOATS", 16 * block)  # windows cross blocks of ten
    near = cosines(queries)
    expected = {
        (a, b)
        for a in range(60)
        for b in range(a + 1, 60)
        if near[a, b] >= 0.95 and set(neighbors[a, :2].tolist()) & set(neighbors[b, :2].tolist())
    }
    found = similar_queries(store, seed=0)
    assert len(expected) > 5
    assert pairs_of(found) == expected
    assert (found.compared, found.of) == (60, 60)
    assert found.cosine.tolist() == sorted(found.cosine.tolist(), reverse=True)
    assert all(near[a, b] == pytest.approx(c, abs=1e-3) for a, b, c in zip(*found[:3], strict=True))


def test_passages_beside_one_another_are_compared_with_brute_force_s_result(hand_made):
    rng = np.random.default_rng(2)
    passages = clustered(30, seed=4)
    neighbors = np.array([rng.permutation(25)[:6] for _ in range(40)])
    found = similar_passages(hand_made(neighbors, passages=passages), seed=0)
    near = cosines(passages)
    together = {tuple(sorted((int(a), int(b)))) for row in neighbors for a in row for b in row if a != b}
    expected = {pair for pair in together if near[pair] >= 0.95}
    assert len(expected) > 5
    assert pairs_of(found) == expected
    assert (found.compared, found.of) == (25, 25)


def test_figures_count_rows_pairs_and_equal_texts_and_show_each_row_once(hand_made):
    queries = [[1, 0], [1, 0.01], [1, 0], [0, 1]]
    texts = ["Who is it?", "who is  it", "Who was it?", "Where is it?"]
    store = hand_made([[0, 1]] * 4, passages=[[1, 0], [0, 1]], queries=queries, query_texts=texts)
    figures = duplicate_figures(store, most=5, seed=0)
    assert figures.threshold == 0.95
    of_queries = figures.queries
    assert (of_queries.near, of_queries.pairs, of_queries.same_text) == (3, 3, 1)
    assert of_queries.share == 0.75
    (example,) = of_queries.examples
    assert [side.id for side in example.pair] == ["q0", "q2"]
    assert example.cosine == 1
    assert figures.passages.as_json() == {
        "compared": 2,
        "of": 2,
        "pairs": 0,
        "near": 0,
        "share": 0.0,
        "same_text": 0,
        "examples": [],
    }


def test_a_large_graph_is_sampled_and_says_so(hand_made, monkeypatch):
    rng = np.random.default_rng(3)
    store = hand_made([rng.permutation(50)[:5] for _ in range(100)], passages=50)
    monkeypatch.setattr(module, "QUERIES", 30)
    monkeypatch.setattr(module, "PASSAGES_READ", 20)
    assert (similar_queries(store, seed=0).compared, similar_queries(store, seed=0).of) == (30, 100)
    found = similar_passages(store, seed=0)
    assert found.compared <= 20
    assert found.of == 50


def test_of_more_queries_than_a_window_holds_each_is_compared_with_the_next_by_score(hand_made, monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)
    scores = np.linspace(1, 0, 10)[:, None]
    store = hand_made([[0]] * 10, passages=[[1, 0]], queries=[[1, 0]] * 10, scores=scores)
    expected = {(a, b) for a in range(10) for b in range(a + 1, min(10, a + 4))}
    assert pairs_of(similar_queries(store, seed=0)) == expected
