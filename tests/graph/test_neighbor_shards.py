import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import InputError
from gnnretrieval.graph import GraphSettings, build_graph
from gnnretrieval.graph.build import search_shard
from gnnretrieval.graph.edges import neighbor_shards
from gnnretrieval.shards import Shard, Sharding


@pytest.fixture
def few_together(monkeypatch):
    """Shards of as few passages as these sets have."""
    monkeypatch.setattr(neighbor_shards, "ALIGNED", 1)
    monkeypatch.setattr(neighbor_shards, "_QUERIES", 7)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 13, 40])
def test_a_graph_in_shards_is_that_of_one_search_byte_for_byte(
    few_together, tiny_graph, tiny_dataset, tiny_features, tmp_path, shards
):
    dataset = Dataset.open(tiny_dataset)
    made = build_graph(dataset, tiny_features, GraphSettings(), tmp_path / "graph", sharding=Sharding(shards=shards))
    assert made.meta["files"] == tiny_graph.meta["files"]
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_passages_of_equal_score_in_several_shards_come_by_row(few_together, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    same = np.ones((len(dataset.passage_ids), 4), dtype=np.float32)
    queries = np.ones((len(dataset.query_ids), 4), dtype=np.float32)
    features = Features.from_vectors(dataset, same, queries, tmp_path / "features")
    settings = GraphSettings(label_edges=False)
    made = build_graph(dataset, features, settings, tmp_path / "graph", sharding=Sharding(shards=3))
    assert np.array_equal(made.neighbors, np.tile(np.arange(5), (60, 1)))


def test_shards_that_were_searched_one_by_one_are_joined(
    few_together, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    dataset, out = Dataset.open(tiny_dataset), tmp_path / "graph"
    for number in range(3):
        (file,) = search_shard(dataset, tiny_features, GraphSettings(), out, Shard(number, 3))
        assert file.name == f"rows-{number + 1:05d}-of-00003.npy"
    assert search_shard(dataset, tiny_features, GraphSettings(), out, Shard(40, 41)) == []
    made = build_graph(dataset, tiny_features, GraphSettings(), out, sharding=Sharding(shards=3))
    assert made.meta["files"] == tiny_graph.meta["files"]


@pytest.mark.parametrize("settings", [GraphSettings(search="faiss"), GraphSettings(edges="bm25")])
def test_other_edges_are_not_searched_in_shards(tiny_dataset, tiny_features, tmp_path, settings):
    with pytest.raises(InputError, match="exact search"):
        build_graph(
            Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph", sharding=Sharding(shards=2)
        )
