import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph import open_graph
from gnnretrieval.graph.store import passage_side


@given(m=st.integers(1, 12), n=st.integers(0, 8), seed=st.integers(0, 999), data=st.data())
def test_the_passage_side_is_the_neighbours_turned_round(m, n, seed, data):
    k = data.draw(st.integers(1, m))
    rng = np.random.default_rng(seed)
    neighbors = np.array([rng.permutation(m)[:k] for _ in range(n)], dtype=np.uint32).reshape(n, k)
    indptr, edges = passage_side(neighbors, m)
    assert (indptr.dtype, edges.dtype) == (np.int64, np.int64)
    assert len(indptr) == m + 1
    for passage in range(m):
        expected = [q * k + rank for q in range(n) for rank in range(k) if neighbors[q, rank] == passage]
        assert edges[indptr[passage] : indptr[passage + 1]].tolist() == expected


def test_a_store_reopened_has_the_same_shape_and_similarity(tiny_graph):
    store = open_graph(tiny_graph.path)
    assert (store.num_passages, store.num_queries, store.k, store.dimension, store.edge_dim) == (40, 60, 5, 32, 3)
    assert store.similarity.normalize
    assert store.similarity.scale == 20
    assert store.encoder_settings.precision == "float32"
    assert store.degrees().tolist() == np.bincount(store.neighbors.ravel(), minlength=40).tolist()


def test_its_arrays_are_memory_mapped(tiny_graph):
    for name in ("neighbors", "scores", "edge_features", "passage_features", "query_features", "indptr", "edges"):
        assert isinstance(getattr(tiny_graph, name), np.memmap), name


def test_every_edge_is_in_the_passage_side_once_sorted_by_query(tiny_graph):
    assert sorted(tiny_graph.edges.tolist()) == list(range(300))
    for passage in range(40):
        edges = tiny_graph.edges[tiny_graph.indptr[passage] : tiny_graph.indptr[passage + 1]]
        assert (tiny_graph.neighbors.ravel()[edges] == passage).all()
        assert (np.diff(edges) > 0).all()


def test_as_hetero_data_it_has_the_same_edges_and_features_both_ways(tiny_graph):
    data = tiny_graph.to_hetero_data()
    assert data.validate()
    torch.testing.assert_close(data["query"].x, torch.tensor(np.array(tiny_graph.query_features)).float())
    torch.testing.assert_close(data["passage"].x, torch.tensor(np.array(tiny_graph.passage_features)).float())
    there, back = data["query", "found", "passage"], data["passage", "found_by", "query"]
    expected = [(q, int(p)) for q in range(60) for p in tiny_graph.neighbors[q]]
    assert [tuple(edge) for edge in there.edge_index.T.tolist()] == expected
    assert [tuple(edge) for edge in back.edge_index.T.tolist()] == [(p, q) for q, p in expected]
    features = torch.tensor(np.array(tiny_graph.edge_features)).float().reshape(300, 3)
    assert torch.equal(there.edge_attr, features)
    assert torch.equal(back.edge_attr, features)


def test_texts_come_by_id_and_an_unknown_id_is_an_error(tiny_graph):
    with tiny_graph.texts() as texts:
        passage = texts.passage_by_id("p07")
        assert texts.passage(passage.row) == passage
        query = texts.query_by_id("train-11")
        assert (query.split, texts.query(query.row)) == ("train", query)
        with pytest.raises(InputError, match="no passage with id 'p99'"):
            texts.passage_by_id("p99")
        with pytest.raises(InputError, match="no query with id 'test-00'"):
            texts.query_by_id("test-00")


@pytest.mark.parametrize("name", ["with space", "50% of it", "a#b", "what?", "a%41"])
def test_a_store_opens_whatever_its_directory_is_called(tiny_graph, tmp_path, name):
    shutil.copytree(tiny_graph.path, tmp_path / name)
    assert open_graph(tmp_path / name).labels.tolist() == tiny_graph.labels.tolist()


def test_features_are_no_graph(tiny_features):
    with pytest.raises(ArtifactError, match="this is features, and a graph is wanted here"):
        open_graph(tiny_features.path)
