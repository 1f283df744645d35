"""The same work on a GPU and on the CPU: equal up to rounding."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gnnretrieval.baselines.rankings import rank_baselines
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.index import build_index, open_index
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.gnn.dry_run import rehearse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ("cpu", "cuda")


def test_features_and_graph(tiny_dataset, tiny_settings, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    features = [encode_dataset(dataset, tiny_settings, tmp_path / name, device=name) for name in DEVICES]
    assert np.abs(features[0].passages.astype(np.float32) - features[1].passages).max() < 2e-3
    assert "cuda" not in str(features[1].meta["encoder"])  # features say nothing of where they were made
    graphs = [
        build_graph(dataset, features[0], GraphSettings(k=5), tmp_path / f"{name}-graph", device=name)
        for name in DEVICES
    ]
    assert np.array_equal(graphs[0].neighbors, graphs[1].neighbors)


def test_exact_search():
    rng = np.random.default_rng(0)
    passages, queries = (rng.standard_normal((count, 16)).astype(np.float16) for count in (5000, 64))
    from gnnretrieval.encoders.similarity import Similarity

    cosine = Similarity(normalize=True, scale=20.0)
    on_cpu, on_gpu = (exact_top_k(queries, passages, 25, cosine, device=name) for name in DEVICES)
    assert np.array_equal(on_cpu[0], on_gpu[0])
    assert np.array_equal(on_cpu[1], on_gpu[1])


@pytest.mark.parametrize("layer", GRAPH_LAYERS)
@pytest.mark.parametrize("mode", ["frozen", "joint"])
def test_every_layer_trains_and_embeds(layer, mode, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    epochs = {"epochs": 2} if mode == "joint" or layer != "linear" else {}
    settings = TrainSettings.parse({"layer": layer, "mode": mode, "evidence": 1.0, "precision": "float32", **epochs})
    models = [train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / name, device=name) for name in DEVICES]
    losses = [
        [line for line in (model.path / "log.jsonl").read_text("utf-8").splitlines() if "loss" in line]
        for model in models
    ]
    assert len(losses[0]) == len(losses[1])
    weights = [load_file(model.path / "model.safetensors") for model in models]
    assert weights[0].keys() == weights[1].keys()
    if models[1].has_encoder:
        return
    made = [
        embed_passages(models[1], tiny_graph, tmp_path / f"embeddings-{name}", device=name).passages for name in DEVICES
    ]
    assert np.abs(made[0].astype(np.float32) - made[1]).max() < 2e-3


def test_the_ladder_keeps_the_same(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    dataset, settings = Dataset.open(tiny_dataset), TrainSettings.parse({"evidence": 1.0})
    models = [train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / name, device=name) for name in DEVICES]
    assert models[0].meta["messages"] == models[1].meta["messages"]
    assert models[0].meta["dev"]["kept"] == models[1].meta["dev"]["kept"]
    weights = [load_file(model.path / "model.safetensors") for model in models]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=1e-4)


def test_the_baselines_rank_the_same(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    given = tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test"
    made = [rank_baselines(*given, tmp_path / name, device=name) for name in DEVICES]
    chosen = [{name: choice["said"] for name, choice in one.meta["chosen"].items()} for one in made]
    assert chosen[0] == chosen[1]
    for name, run in made[0].runs().items():
        for query, ranked in made[1].runs()[name].items():
            assert ranked[0].passage_id == run[query][0].passage_id


@pytest.mark.parametrize("layer", ["linear", "gat"])
@pytest.mark.parametrize("mode", ["frozen", "joint"])
def test_a_dry_run_measures_the_gpu(layer, mode, tiny_graph, tiny_dataset, tiny_features):
    settings = TrainSettings.parse({"layer": layer, "mode": mode})
    found = rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, device="cuda")
    assert 0 < found["step_seconds"] < 60
    assert found["memory"]["peak"] > 0


def test_torch_searches_an_index_there(tiny_features, tmp_path):
    index = build_index(tiny_features, tmp_path / "index")
    on_cpu, on_gpu = (open_index(index.path, engine="torch", device=name) for name in DEVICES)
    queries = np.asarray(tiny_features.queries[:8])
    assert np.array_equal(on_cpu.search(queries, 5)[0], on_gpu.search(queries, 5)[0])
