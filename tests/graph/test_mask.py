import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.graph import mask_queries


def one_label_each(n: int, passages: int) -> np.ndarray:
    return np.array([[query, query % passages] for query in range(n)])


@st.composite
def labelled(draw):
    """Every query has at least one relevant passage."""
    n = draw(st.integers(1, 30))
    passages = draw(st.integers(1, 12))
    pairs = {(query, draw(st.integers(0, passages - 1))) for query in range(n)}
    pairs |= draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, passages - 1)), max_size=5))
    return n, np.array(sorted(pairs))


@given(labels=labelled(), ratio=st.floats(0.01, 0.9), seed=st.integers(0, 99))
def test_by_query_exactly_the_share_is_masked(labels, ratio, seed):
    n, pairs = labels
    masked = mask_queries(n, pairs, ratio, "query", np.random.default_rng(seed))
    assert (masked.shape, masked.dtype) == ((n,), bool)
    assert masked.sum() == max(1, round(ratio * n))


@given(labels=labelled(), ratio=st.floats(0.01, 0.9), seed=st.integers(0, 99))
def test_by_passage_whole_passages_are_masked_and_no_more_than_one_too_many(labels, ratio, seed):
    n, pairs = labels
    masked = mask_queries(n, pairs, ratio, "passage", np.random.default_rng(seed))
    groups = {passage: pairs[pairs[:, 1] == passage, 0] for passage in set(pairs[:, 1].tolist())}
    whole = [queries for queries in groups.values() if masked[queries].all()]
    assert set(np.flatnonzero(masked).tolist()) == {int(query) for queries in whole for query in queries}
    wanted = max(1, round(ratio * n))
    assert wanted <= masked.sum() < wanted + max(len(queries) for queries in groups.values())


@given(labels=labelled(), ratio=st.floats(0.01, 0.9), seed=st.integers(0, 99))
def test_mixed_masks_at_least_the_share_and_half_of_it_by_passage(labels, ratio, seed):
    n, pairs = labels
    masked = mask_queries(n, pairs, ratio, "mixed", np.random.default_rng(seed))
    groups = {passage: pairs[pairs[:, 1] == passage, 0] for passage in set(pairs[:, 1].tolist())}
    wanted = max(1, round(ratio * n))
    assert wanted <= masked.sum() < wanted + max(len(queries) for queries in groups.values())
    by_passage = {int(query) for queries in groups.values() if masked[queries].all() for query in queries}
    assert len(by_passage) >= wanted // 2


def test_mixed_leaves_some_passages_with_queries_in_the_graph():
    labels = one_label_each(400, 40)
    masked = mask_queries(400, labels, 0.2, "mixed", np.random.default_rng(0))
    shares = [masked[labels[labels[:, 1] == passage, 0]].mean() for passage in range(40)]
    assert masked.sum() == 80
    assert sum(share == 1 for share in shares) == 4
    assert sum(0 < share < 1 for share in shares) > 10


@pytest.mark.parametrize("unit", ["query", "passage", "mixed"])
def test_the_choice_follows_the_rng(unit):
    labels = one_label_each(100, 30)
    first, again, other = (mask_queries(100, labels, 0.2, unit, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize("unit", ["query", "passage", "mixed"])
def test_over_many_epochs_every_query_is_masked_about_as_often(unit):
    labels = one_label_each(60, 20)
    rng = np.random.default_rng(0)
    share = np.mean([mask_queries(60, labels, 0.2, unit, rng) for _ in range(400)], axis=0)
    assert share.min() > 0.12
    assert share.max() < 0.3


@pytest.mark.parametrize("unit", ["query", "passage", "mixed"])
def test_at_least_one_query_is_masked(unit):
    labels = one_label_each(3, 3)
    assert mask_queries(3, labels, 0.01, unit, np.random.default_rng(0)).sum() == 1


def test_queries_of_several_relevant_passages_are_masked_once():
    labels = np.array([[0, 0], [0, 1], [1, 0], [2, 1]])
    for seed in range(10):
        masked = mask_queries(3, labels, 0.5, "passage", np.random.default_rng(seed))
        assert masked.tolist() in ([True, True, False], [True, False, True])
