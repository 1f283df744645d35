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
