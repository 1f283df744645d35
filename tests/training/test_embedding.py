import json
import shutil

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.nn import GNNEncoder
from gnnretrieval.training import GNNEncoderModel, TrainSettings, embed_passages, open_embeddings, train_gnn
from gnnretrieval.training.gnn import embedding
from gnnretrieval.training.gnn.embedding import gated_contexts, nodes_to_embed
from gnnretrieval.training.gnn.graph_tensors import GraphTensors, edge_moments


@pytest.fixture(scope="module")
def trained(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory) -> GNNEncoderModel:
    settings = TrainSettings(epochs=2, mask_ratio=0.3, context_scales=(0.5,), learning_rate=0.01)
    out = tmp_path_factory.mktemp("trained") / "model"
    return train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, out)


def moved_from_the_start(store) -> GNNEncoder:
    model = GNNEncoder(store.dimension, store.edge_dim)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("block", [1, 7, 40, 8192])
@pytest.mark.parametrize("mask", [False, True])
def test_contexts_in_blocks_equal_one_forward_over_the_whole_graph(tiny_graph, monkeypatch, block, mask):
    monkeypatch.setattr(embedding, "_BLOCK", block)
    visible = np.arange(tiny_graph.num_queries) % 4 > 0 if mask else None
    model = moved_from_the_start(tiny_graph).eval()
    done = []
    blocks = list(gated_contexts(model, tiny_graph, "cpu", visible, done.append))
    assert np.concatenate([rows for rows, _, _ in blocks]).tolist() == list(range(40))
    assert sum(done) == tiny_graph.num_queries + tiny_graph.num_passages
    found = torch.cat([passages + context for _, passages, context in blocks])
    with torch.no_grad():
        whole = model(GraphTensors(tiny_graph).batch(np.arange(tiny_graph.num_passages), visible))
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", [2**30, 1])
def test_some_passages_alone_have_the_contexts_they_have_among_all(tiny_graph, memory, tmp_path):
    """Also when interactive queries are kept in a file, which is gone afterwards."""
    model = moved_from_the_start(tiny_graph).eval()
    whole = torch.cat([context for _, _, context in gated_contexts(model, tiny_graph)])
    only = np.array([0, 3, 21, 39])
    done: list[int] = []
    found = list(
        gated_contexts(model, tiny_graph, "cpu", None, done.append, only=only, memory=memory, scratch=tmp_path)
    )
    assert np.concatenate([rows for rows, _, _ in found]).tolist() == only.tolist()
    torch.testing.assert_close(torch.cat([context for _, _, context in found]), whole[only], rtol=1e-4, atol=1e-5)
    assert sum(done) == nodes_to_embed(tiny_graph, only) < nodes_to_embed(tiny_graph)
    assert list(tmp_path.iterdir()) == []


def test_over_a_view_of_smaller_k_they_are_those_of_the_graph_built_with_it(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    settings = GraphSettings(k=2, label_edges=False, edge_features=("score", "reciprocal_rank"))
    small = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "small")
    large = build_graph(
        Dataset.open(tiny_dataset), tiny_features, settings.model_copy(update={"k": 5}), tmp_path / "large"
    )
    model = moved_from_the_start(small).eval()
    expected = torch.cat([context for _, _, context in gated_contexts(model, small)])
    found = torch.cat([context for _, _, context in gated_contexts(model, large.view(k=2))])
    assert torch.equal(found, expected)


def test_embeddings_are_those_of_the_model_as_they_are_compared(trained, tiny_graph, tmp_path):
    module = trained.load()
    with torch.no_grad():
        module.context_scale.fill_(0.5)
    trained.load = lambda device="cpu": module
    embeddings = embed_passages(trained, tiny_graph, tmp_path / "embeddings")
    del trained.load
    with torch.no_grad():
        whole = module(GraphTensors(tiny_graph).batch(np.arange(tiny_graph.num_passages)))
    assert embeddings.passages.dtype == np.float16
    np.testing.assert_allclose(embeddings.passages, tiny_graph.similarity.prepare(whole), atol=1e-3)
    assert embeddings.similarity == tiny_graph.similarity
    with TextStore(embeddings.path / "texts.sqlite") as texts:
        assert texts.passage_ids() == [f"p{row:02d}" for row in range(40)]


def test_embeddings_of_context_scale_zero_are_the_dual_encoders(trained, tiny_graph, tmp_path):
    module = trained.load()
    module.context_scale.zero_()
    trained.load = lambda device="cpu": module
    embeddings = embed_passages(trained, tiny_graph, tmp_path / "embeddings")
    del trained.load
    expected = tiny_graph.similarity.prepare(torch.from_numpy(np.array(tiny_graph.passage_features)))
    assert np.array_equal(embeddings.passages, expected.numpy().astype(np.float16))


def test_embedded_twice_the_bytes_are_equal(trained, tiny_graph, tmp_path):
    first = embed_passages(trained, tiny_graph, tmp_path / "first")
    second = embed_passages(trained, tiny_graph, tmp_path / "second")
    assert first.hash == second.hash
    assert open_embeddings(tmp_path / "first").meta == first.meta


def test_a_store_of_other_widths_is_refused(trained, tiny_dataset, tiny_features, tmp_path):
    settings = GraphSettings(edge_features=("score",))
    other = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph")
    with pytest.raises(ArtifactError, match=r"edges of 4 .* has 32 and 1"):
        embed_passages(trained, other, tmp_path / "embeddings")
    assert not (tmp_path / "embeddings").exists()


def features_by_another_encoder(features: Features, out) -> Features:
    shutil.copytree(features.path, out)
    meta = json.loads((out / "meta.json").read_text())
    meta["checkpoint_hash"]["passage"] = "of another encoder"
    (out / "meta.json").write_text(json.dumps(meta))
    return open_features(out)


def test_a_store_of_another_dual_encoders_features_is_refused(trained, tiny_dataset, tiny_features, tmp_path):
    others = features_by_another_encoder(tiny_features, tmp_path / "features")
    other = build_graph(Dataset.open(tiny_dataset), others, GraphSettings(), tmp_path / "graph")
    with pytest.raises(ArtifactError, match="over another dual-encoder than that of"):
        embed_passages(trained, other, tmp_path / "embeddings")


def test_damaged_weights_are_an_error_that_names_the_file(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "model")
    damaged = GNNEncoderModel(tmp_path / "model", trained.meta)
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"model\.safetensors: these weights cannot be loaded.*Train again"):
        damaged.load()


def test_a_graph_without_edge_features_trains_and_embeds(tiny_dataset, tiny_features, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    graph = build_graph(dataset, tiny_features, GraphSettings(edge_features=()), tmp_path / "graph")
    settings = TrainSettings(epochs=1, context_scales=(0.5,))
    model = train_gnn(graph, dataset, tiny_features, settings, tmp_path / "model")
    embeddings = embed_passages(model, graph, tmp_path / "embeddings")
    assert embeddings.passages.shape == (40, 32)
    assert np.isfinite(embeddings.passages).all()


def test_edge_moments_are_the_mean_and_deviation_of_each_feature(tiny_graph):
    features = np.random.default_rng(0).normal(3, 2, (60, 5, 3)).astype(np.float16)
    features[:, :, 2] = 0.5
    store = open_graph(tiny_graph.path)
    store.__dict__["edge_arrays"] = store.edge_arrays._replace(cheap=features)
    shown = np.arange(60) % 3 > 0
    np.testing.assert_allclose(
        edge_moments(store, shown)[0], features[shown].reshape(-1, 3).astype(np.float64).mean(0), rtol=1e-6
    )
    assert edge_moments(store.view(k=1), shown)[0][0] == np.float32(features[shown, 0, 0].astype(np.float64).mean())
    mean, deviation = edge_moments(store)
    flat = features.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(mean, flat.mean(0), rtol=1e-6)
    np.testing.assert_allclose(deviation, [*flat.std(0)[:2], 1.0], rtol=1e-6)
