import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
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
    assert (store.num_passages, store.num_queries, store.k, store.dimension, store.edge_dim) == (40, 60, 5, 32, 4)
    assert store.similarity.normalize
    assert store.similarity.scale == 20
    assert store.encoder_settings.precision == "float32"
    assert store.degrees().tolist() == np.bincount(store.neighbors.ravel(), minlength=40).tolist()


def test_its_arrays_are_memory_mapped(tiny_graph):
    for name in ("neighbors", "scores", "passage_features", "query_features", "indptr", "edges"):
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
    features = torch.tensor(np.array(tiny_graph.edge_arrays.cheap)).float().reshape(300, 4)
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
    with pytest.raises(ArtifactError, match="holds features, not a graph"):
        open_graph(tiny_features.path)


def test_a_smaller_k_is_a_view(tiny_graph):
    view = tiny_graph.view(k=2)
    assert (view.k, view.stride, view.neighbors.shape, view.scores.shape) == (2, 5, (60, 2), (60, 2))
    assert np.shares_memory(view.neighbors, tiny_graph.neighbors)
    assert view.degrees().tolist() == np.bincount(tiny_graph.neighbors[:, :2].ravel(), minlength=40).tolist()
    edges, offsets = view.found_by(np.arange(40))
    assert edges.tolist() == [edge for edge in tiny_graph.edges.tolist() if edge % 5 < 2]
    assert np.diff(offsets).tolist() == view.degrees().tolist()
    assert (tiny_graph.k, tiny_graph.neighbors.shape) == (5, (60, 5))


def test_a_view_of_some_queries_has_their_edges_and_labels_alone(tiny_graph):
    rows = np.array([3, 10, 59])
    view = tiny_graph.view(queries=rows)
    edges, offsets = view.found_by(slice(0, 40))
    assert set((edges // 5).tolist()) == {3, 10, 59}
    assert (len(edges), offsets[-1]) == (15, 15)
    assert set(view.labels[:, 0].tolist()) == {3, 10, 59}
    assert view.degrees().sum() == 15
    assert view.view(k=1, queries=np.arange(60) < 11).degrees().sum() == 2
    subgraph = view.subgraph(np.arange(40))
    assert subgraph.queries.tolist() == [3, 10, 59]
    assert subgraph.query_edges.tolist() == [q * 5 + rank for q in (3, 10, 59) for rank in range(5)]


def test_a_subgraph_of_a_smaller_k_is_that_of_a_graph_built_with_it(tiny_dataset, tiny_features, tmp_path):
    wide, built = (
        build_graph(
            Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=k, label_edges=False), tmp_path / f"graph-{k}"
        )
        for k in (5, 3)
    )
    view = wide.view(k=3)
    asked = np.array([5, 0, 17, 5])
    for found, expected in zip(view.subgraph(asked), built.subgraph(asked), strict=True):
        assert found.shape == expected.shape
    ours, theirs = view.subgraph(asked), built.subgraph(asked)
    for name in ("queries", "sources", "passage_index", "passage_offsets", "query_index", "query_offsets"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
    np.testing.assert_array_equal(
        view.gather_edge_features(ours.query_edges)[:, :2], built.gather_edge_features(theirs.query_edges)[:, :2]
    )


def test_a_view_of_a_split_has_its_queries(tiny_graph):
    assert tiny_graph.view(split="train").visible.all()
    with pytest.raises(GnnRetrievalError, match="no query of this graph is of split 'log'"):
        tiny_graph.view(split="log")
    with pytest.raises(GnnRetrievalError, match="each query has 5 passages here: give a k from 1 to 5"):
        tiny_graph.view(k=6)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("neighbors", lambda a: a[:-1], r"its shape is \(59, 5\), and \(60, any\) is wanted"),
        ("neighbors", lambda a: a.astype(np.int64), "its type is int64, and uint32 is wanted"),
        ("scores", lambda a: a[:, :4], r"its shape is \(60, 4\), and \(60, 5\) is wanted"),
        ("query_features", lambda a: a[:, :31], r"its shape is \(60, 31\), and \(60, 32\) is wanted"),
        ("passage_features", lambda a: a[:39], r"its shape is \(39, 32\), and \(40, any\) is wanted"),
        ("passage_indptr", lambda a: a[:-1], r"its shape is \(40,\), and \(41\) is wanted"),
        ("passage_edges", lambda a: a[:-1], r"its shape is \(299,\), and \(300\) is wanted"),
        ("edge_features", lambda a: a[:, :, :2], r"its shape is \(60, 5, 2\), and \(60, 5, 4\) is wanted"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_when_it_is_opened(tiny_graph, tmp_path, name, change, message):
    shutil.copytree(tiny_graph.path, tmp_path / "graph")
    path = tmp_path / "graph" / f"{name}.npy"
    np.save(path, change(np.load(path)))
    forget_sizes(tmp_path / "graph")
    with pytest.raises(ArtifactError, match=message):
        open_graph(tmp_path / "graph")


def forget_sizes(directory: Path) -> None:
    """Make it a graph of an earlier version, which did not record the sizes of its files."""
    meta = json.loads((directory / "meta.json").read_text())
    del meta["sizes"]
    (directory / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_of_another_format_version_is_refused_in_a_sentence(tiny_graph, tmp_path, version):
    shutil.copytree(tiny_graph.path, tmp_path / "graph")
    meta = json.loads((tmp_path / "graph" / "meta.json").read_text())
    (tmp_path / "graph" / "meta.json").write_text(json.dumps({**meta, "format_version": version}))
    with pytest.raises(ArtifactError, match=f"format version {version}"):
        open_graph(tmp_path / "graph")
