import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.mining import sample_hard_negatives

NEIGHBORS = np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]], dtype=np.uint32)
LABELS = np.array([[0, 1], [0, 8], [1, 9], [2, 3]])


def test_by_hand_all_neighbours_but_the_relevant_ones():
    rng = np.random.default_rng(0)
    for queries, expected in (([0], [3, 4]), ([1], [1, 5]), ([0, 1], [1, 3, 4, 5]), ([2], [2, 5, 6])):
        assert sample_hard_negatives(NEIGHBORS, np.array(queries), LABELS, 3, rng).tolist() == expected


def test_fewer_are_drawn_than_there_are_and_each_comes_up_in_time():
    seen = set()
    for seed in range(30):
        drawn = sample_hard_negatives(NEIGHBORS, np.array([0]), LABELS, 1, np.random.default_rng(seed))
        assert len(drawn) == 1
        seen |= set(drawn.tolist())
    assert seen == {3, 4}


def test_a_query_whose_neighbours_are_all_relevant_gives_none():
    labels = np.array([[0, 1], [0, 3], [0, 4]])
    assert sample_hard_negatives(NEIGHBORS, np.array([0]), labels, 4, np.random.default_rng(0)).tolist() == []


def test_the_same_rng_draws_the_same():
    first, second = (
        sample_hard_negatives(NEIGHBORS, np.array([0, 1, 2]), LABELS, 1, np.random.default_rng(4)) for _ in range(2)
    )
    assert first.tolist() == second.tolist()


@given(st.data())
def test_every_negative_is_a_neighbour_that_is_not_relevant_to_its_query(data):
    m, n, k = data.draw(st.integers(3, 20)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    neighbors = np.array([rng.permutation(m)[:k] for _ in range(n)], dtype=np.uint32)
    pairs = data.draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), min_size=1))
    queries = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    count = data.draw(st.integers(0, 4))
    drawn = sample_hard_negatives(neighbors, queries, np.array(sorted(pairs)), count, rng)
    allowed = [{int(p) for p in neighbors[q]} - {p for asked, p in pairs if asked == q} for q in queries]
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert set(drawn.tolist()) <= set().union(*allowed)
    assert len(drawn) <= sum(min(count, len(found)) for found in allowed)
    assert len(drawn) >= max(min(count, len(found)) for found in allowed)
