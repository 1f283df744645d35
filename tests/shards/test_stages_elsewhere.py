"""Every stage in shards, by workers that have none of its inputs but what an object store gives them."""

import pickle
from contextlib import ExitStack, contextmanager

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import pair_shards
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.graph import GraphSettings, build_graph
from gnnretrieval.graph.edges import neighbor_shards
from gnnretrieval.graph.edges import pair_shards as edge_shards
from gnnretrieval.graph.edges import pairs as edge_pairs
from gnnretrieval.index import build_index
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.mining import denoise, mine_negatives
from gnnretrieval.mining.denoise import DenoiseSettings
from gnnretrieval.mining.negatives import NegativeSettings
from gnnretrieval.shards import Sharding, engines
from gnnretrieval.shards.stored_stage import StoredStage


@contextmanager
def away(path):
    """Nothing is at the path."""
    hidden = path.with_name(f"{path.name}-away")
    path.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(path)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Three shards by a worker on another machine, and the names of the inputs that it had to copy."""
    names = []

    def run(stage, numbers, sharding, finished):
        stage = pickle.loads(pickle.dumps(stage))
        assert isinstance(stage, StoredStage)
        names.append(sorted(path.name for path in stage.inputs))
        for number in numbers:
            with ExitStack() as stack:
                for path in stage.inputs:
                    stack.enter_context(away(path))
                stage.run(number)
            finished(number)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(engines.ENGINES, "ray", run)
    return Sharding(shards=3, engine="ray", storage=f"file://{tmp_path}/store"), names


def test_encoding(tiny_dataset, tiny_settings, tmp_path, elsewhere):
    sharding, names = elsewhere
    dataset, settings = Dataset.open(tiny_dataset), tiny_settings.model_copy(update={"window": 16})
    whole = encode_dataset(dataset, settings, tmp_path / "whole")
    made = encode_dataset(dataset, settings, tmp_path / "features", sharding=sharding)
    assert made.meta["files"] == whole.meta["files"]
    assert len(names[0]) == 2  # the dataset and the checkpoint


def test_search_and_edge_vectors(tiny_dataset, tiny_features, tiny_cross_encoder, tmp_path, monkeypatch, elsewhere):
    sharding, names = elsewhere
    monkeypatch.setattr(neighbor_shards, "ALIGNED", 1)
    for module in (edge_pairs, edge_shards, pair_shards):
        monkeypatch.setattr(module, "PAIRS", 16)
    dataset = Dataset.open(tiny_dataset)
    settings = GraphSettings(k=3, edge_vectors="cross-encoder", cross_encoder=str(tiny_cross_encoder), pair_tokens=64)
    whole = build_graph(dataset, tiny_features, settings, tmp_path / "whole")
    made = build_graph(dataset, tiny_features, settings, tmp_path / "graph", sharding=sharding)
    assert made.meta["files"] == whole.meta["files"]
    assert names[0] == sorted([tiny_dataset.name, tiny_features.path.name])
    assert names[1] == sorted([tiny_cross_encoder.name, "neighbors.npy", "passage_edges.npy", "texts.sqlite"])


def test_denoising(tiny_dataset, tiny_features, tiny_cross_encoder, tmp_path, monkeypatch, elsewhere):
    sharding, names = elsewhere
    monkeypatch.setattr(pair_shards, "PAIRS", 16)
    dataset = Dataset.open(tiny_dataset)
    mined = mine_negatives(dataset, NegativeSettings(top_k=5), tmp_path / "mined", features=tiny_features)
    settings = DenoiseSettings(cross_encoder=str(tiny_cross_encoder), pair_tokens=32)
    whole = denoise(dataset, mined, settings, tmp_path / "whole")
    made = denoise(dataset, mined, settings, tmp_path / "denoised", sharding=sharding)
    assert made.meta["files"] == whole.meta["files"]
    assert names[0][1:] == sorted([tiny_cross_encoder.name, "texts.sqlite"])


@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat"])
def test_indexing(factory, tiny_features, tmp_path, elsewhere):
    sharding, names = elsewhere
    settings = IndexSettings(factory=factory, parts=3, search=None if factory == "Flat" else "nprobe=4")
    whole = build_index(tiny_features, tmp_path / "whole", settings)
    made = build_index(tiny_features, tmp_path / "index", settings, sharding=sharding)
    assert made.meta["files"] == whole.meta["files"]
    assert names[0] == sorted([tiny_features.path.name, *(["learned.faiss"] if factory != "Flat" else [])])
