import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.graph.store import passage_side
from gnnretrieval.graph.subgraph import two_hops


@st.composite
def graphs(draw):
    m = draw(st.integers(1, 12))
    n, k = draw(st.integers(1, 8)), draw(st.integers(1, m))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    neighbors = np.array([rng.permutation(m)[:k] for _ in range(n)], dtype=np.uint32)
    passages = np.array(draw(st.lists(st.integers(0, m - 1), max_size=6)), dtype=np.int64)
    visible = draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n))
    return neighbors, m, passages, None if visible is None else np.array(visible)


@given(graphs())
def test_two_hops_equal_brute_force_with_masked_queries_and_repeated_passages(graph):
    neighbors, m, passages, visible = graph
    n, k = neighbors.shape
    found = two_hops(passages, neighbors, *passage_side(neighbors, m), visible)
    shown = range(n) if visible is None else [query for query in range(n) if visible[query]]
    into = [[q * k + r for q in shown for r in range(k) if neighbors[q, r] == passage] for passage in passages]
    queries = sorted({edge // k for edges in into for edge in edges})
    sources = sorted({int(passage) for query in queries for passage in neighbors[query]})
    assert found.passages.tolist() == passages.tolist()
    assert found.queries.tolist() == queries
    assert found.sources.tolist() == sources
    assert found.passage_edges.tolist() == [edge for edges in into for edge in edges]
    assert found.passage_offsets.tolist() == np.cumsum([0, *map(len, into)]).tolist()
    assert found.queries[found.passage_index].tolist() == [edge // k for edges in into for edge in edges]
    assert found.query_edges.tolist() == [query * k + rank for query in queries for rank in range(k)]
    assert found.query_offsets.tolist() == list(range(0, len(queries) * k + 1, k))
    assert found.sources[found.query_index].tolist() == neighbors[queries].ravel().tolist()


def test_a_graph_by_hand_with_a_masked_query():
    neighbors = np.array([[0, 1], [1, 2], [2, 0]], dtype=np.uint32)
    found = two_hops(np.array([1, 3]), neighbors, *passage_side(neighbors, 4), np.array([True, False, True]))
    assert found.queries.tolist() == [0]
    assert found.sources.tolist() == [0, 1]
    assert found.passage_edges.tolist() == [1]
    assert found.passage_offsets.tolist() == [0, 1, 1]
    assert found.query_edges.tolist() == [0, 1]
    assert found.query_index.tolist() == [0, 1]


# Dropped edges, and a sample of a hub's.


def test_dropped_edges_are_in_neither_layer(tiny_graph):
    dropped = tiny_graph.label_edges()
    assert dropped.sum() > 10
    passages = np.arange(tiny_graph.num_passages)
    whole, without = tiny_graph.subgraph(passages), tiny_graph.subgraph(passages, dropped=dropped)
    assert set(without.passage_edges) == set(whole.passage_edges) - set(np.flatnonzero(dropped))
    assert set(without.query_edges) == set(whole.query_edges) - set(np.flatnonzero(dropped))
    for row, query in enumerate(without.queries):
        edges = slice(without.query_offsets[row], without.query_offsets[row + 1])
        assert (without.query_edges[edges] // tiny_graph.stride == query).all()
        found = tiny_graph.neighbors[query][without.query_edges[edges] % tiny_graph.stride]
        assert without.sources[without.query_index[edges]].tolist() == found.tolist()


def test_a_sample_has_at_most_so_many_edges_of_a_passage_and_all_of_the_others(tiny_graph):
    passages = np.arange(tiny_graph.num_passages)
    whole = tiny_graph.subgraph(passages)
    seen = set()
    for seed in range(40):
        some = tiny_graph.subgraph(passages, sample=(4, np.random.default_rng(seed)))
        counts = np.diff(some.passage_offsets)
        np.testing.assert_array_equal(counts, np.minimum(np.diff(whole.passage_offsets), 4))
        for row in passages:
            own = some.passage_edges[some.passage_offsets[row] : some.passage_offsets[row + 1]]
            all_of_it = whole.passage_edges[whole.passage_offsets[row] : whole.passage_offsets[row + 1]]
            assert set(own) <= set(all_of_it)
            assert (np.diff(own) > 0).all()
        seen |= set(some.passage_edges)
    assert seen == set(whole.passage_edges)
