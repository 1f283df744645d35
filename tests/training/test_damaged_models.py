"""GNN-encoders whose weights or meta.json are not what training writes."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import open_features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index.faiss_index import build_index
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.model import open_model
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.gnn.train import train_gnn


@pytest.fixture(scope="module")
def trained(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    """``trained(layer)`` is the directory of a model of few steps."""

    def train(layer):
        out = tmp_path_factory.mktemp(layer) / "model"
        settings = TrainSettings.parse({"layer": layer, **({"epochs": 1} if layer == "gat" else {})})
        return train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, out).path

    return cache(train)


@pytest.fixture
def gat(trained, tmp_path):
    """A model with layer = gat that a test may spoil, as its directory."""
    return shutil.copytree(trained("gat"), tmp_path / "model")


@pytest.fixture
def linear(trained, tmp_path):
    """The same with layer = linear."""
    return shutil.copytree(trained("linear"), tmp_path / "model")


def edit(model, **entries):
    meta = json.loads((model / "meta.json").read_text())
    (model / "meta.json").write_text(json.dumps({**meta, **entries}))


def test_weights_that_are_not_finite_make_no_embeddings(gat, tiny_graph, tmp_path):
    weights = load_file(gat / "model.safetensors")
    for tensor in weights.values():
        tensor.fill_(float("nan"))
    save_file(weights, gat / "model.safetensors")
    with pytest.raises(ArtifactError, match="makes vectors that are not finite"):
        embed_passages(open_model(gat), tiny_graph, tmp_path / "out")


def test_a_width_that_the_weights_do_not_have_takes_no_memory(gat):
    edit(gat, dimension=2_000_000)
    with pytest.raises(InputError, match=r"meta\.json says 2000000"):
        open_model(gat).load()


@pytest.mark.parametrize(
    "messages",
    [
        {"passes": 10**12},
        {"passes": -1},
        {"rounds": 10**12},
        {"mean": 1e999},
        {"steps": []},
        {"unknown": 1},
        {"rounds": -1},
        {"mean": "x"},
    ],
)
def test_messages_that_no_training_chooses_are_refused(messages, linear):
    edit(linear, messages={**open_model(linear).meta["messages"], **messages})
    with pytest.raises(GnnRetrievalError, match="Train again"):
        open_model(linear).load_messages()


def test_vectors_that_are_not_finite_are_not_indexed(tiny_features, tmp_path):
    features = shutil.copytree(tiny_features.path, tmp_path / "features")
    vectors = np.load(features / "passages.npy")
    vectors[7, 3] = np.nan
    np.save(features / "passages.npy", vectors)
    with pytest.raises(ArtifactError, match=r"passages\.npy: .*row 7 holds a number that is not finite"):
        build_index(open_features(features), tmp_path / "index")
