"""The settings of training beyond the paper's, and the ablations'."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gnnretrieval.cli.settings_options import settings_from
from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import store as store_module
from gnnretrieval.graph import subgraph as subgraph_module
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.mining.examples import Candidate, Example, Examples, write_examples
from gnnretrieval.nn import GNNEncoder
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.recipes.recipe import Recipe
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn import loop as gnn
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.examples import LearnedFrom
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.loop import GNNTraining

SHORT = {"epochs": 3, "batch_size": 12, "learning_rate": 0.01, "context_scales": (0.5, 1.0), "mask_unit": "query"}


def a_training(store: Graph, place, learned: LearnedFrom | None = None, **settings) -> GNNTraining:
    dev = DevSet(np.asarray(store.query_features[:4]), [[0], [1], [2], [3]], store.similarity)
    return GNNTraining(store, dev, TrainSettings(**{**SHORT, **settings}), place, learned=learned)


# Without masked graph training.


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_without_masking_every_query_is_trained_on_and_no_label_edge_is_in_its_graph(
    tiny_graph, tmp_path, monkeypatch, candidates
):
    seen = []
    subgraph = Graph.subgraph
    monkeypatch.setattr(Graph, "subgraph", lambda *args, **options: seen.append(subgraph(*args, **options)) or seen[-1])
    training = a_training(tiny_graph, tmp_path, mask_unit="none", candidates=candidates)
    assert training.steps_per_epoch == 5
    record = training.epoch(0)
    assert len(record["steps"]) == 5
    labels = set(np.flatnonzero(tiny_graph.label_edges()))
    in_training = seen[: 1 if candidates == "corpus" else 5]
    assert all(not labels & set(graph.passage_edges) for graph in in_training)
    assert all(not labels & set(graph.query_edges) for graph in in_training)
    assert all(len(graph.queries) > 30 for graph in in_training)
    assert labels & set(seen[-1].passage_edges)  # dev is measured over the whole graph, as passages are embedded


def test_without_masking_no_edge_to_a_mined_positive_is_in_the_graph_either(tiny_graph, tmp_path, monkeypatch):
    mined = next(int(row) for row in tiny_graph.neighbors[7] if row != 7)  # retrieved, and not labelled
    labels = np.array(sorted([*tiny_graph.labels.tolist(), [7, mined]]))
    learned = LearnedFrom.of(tiny_graph)._replace(labels=labels)
    seen = []
    subgraph = Graph.subgraph
    monkeypatch.setattr(Graph, "subgraph", lambda *args, **options: seen.append(subgraph(*args, **options)) or seen[-1])
    a_training(tiny_graph, tmp_path, learned, mask_unit="none", candidates="corpus").epoch(0)
    edge = 7 * tiny_graph.stride + tiny_graph.neighbors[7].tolist().index(mined)
    assert edge not in seen[0].passage_edges
    assert edge not in seen[0].query_edges


# Which passages are negatives.


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
@pytest.mark.parametrize("negatives", ["masked", "all"])
def test_negatives_are_passages_that_masked_queries_are_labelled_with(
    tiny_graph, tmp_path, monkeypatch, candidates, negatives
):
    chosen, steps = [], []
    mask_queries, step_of = gnn.mask_queries, gnn.step_of
    monkeypatch.setattr(gnn, "mask_queries", lambda *args: chosen.append(mask_queries(*args)) or chosen[-1])
    monkeypatch.setattr(gnn, "step_of", lambda *args: steps.append(step_of(*args)) or steps[-1])
    training = a_training(tiny_graph, tmp_path, candidates=candidates, negatives=negatives, batch_size=6)
    for epoch in range(3):
        training.epoch(epoch)
        of_masked = {passage for query, passage in tiny_graph.labels.tolist() if chosen[epoch][query]}
        assert len(of_masked) < tiny_graph.num_passages
        for step in steps:
            assert len(step.candidates) > len(set(step.positives))  # there are negatives
            assert (set(step.candidates.tolist()) <= of_masked) == (negatives == "masked")
        steps.clear()


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_a_teacher_scores_passages_that_are_no_negatives(judged_graph, tmp_path, monkeypatch, candidates):
    labelled = set(judged_graph.labels[:, 1])
    steps = []
    monkeypatch.setattr(gnn, "step_of", lambda *args, step_of=gnn.step_of: steps.append(step_of(*args)) or steps[-1])
    a_training(judged_graph, tmp_path, candidates=candidates, negatives="masked", distillation=0.5).epoch(0)
    for step in steps:
        assert {*judged_graph.neighbors[step.queries].ravel().tolist()} <= {*step.candidates.tolist()}
        negatives = step.candidates[~step.relevant.all(axis=0)]
        assert len(negatives) > 0
        assert set(negatives) <= labelled
        assert set(step.candidates) - labelled


# A cap for hubs.


def test_a_cap_on_neighbors_is_for_training_alone(tiny_graph, tmp_path, monkeypatch):
    seen = []
    subgraph = Graph.subgraph
    monkeypatch.setattr(Graph, "subgraph", lambda *args, **options: seen.append(subgraph(*args, **options)) or seen[-1])
    training = a_training(tiny_graph, tmp_path, neighbors=3, candidates="batch")
    training.epoch(0)
    *in_training, on_dev = seen
    assert all(np.diff(graph.passage_offsets).max() == 3 for graph in in_training)
    assert np.diff(on_dev.passage_offsets).max() > 3


# The window on dev.


@pytest.mark.parametrize(("window", "kept"), [(1, 2), (2, 5), (3, 4)])
def test_an_epoch_is_chosen_with_those_before_it(window, kept, tiny_graph, tmp_path, monkeypatch):
    gains = iter([0.1, 0.6, 0.1, 0.4, 0.45, 0.1])  # epoch 2 is a lucky one
    monkeypatch.setattr(
        DevSet, "measure", lambda *args: {0.0: np.zeros(4), 1.0: next(gains) + np.array([0, 0.01, 0, 0.01])}
    )
    training = a_training(tiny_graph, tmp_path, epochs=6, dev_window=window, context_scales=(1.0,))
    training.run()
    assert training.best_record["epoch"] == kept


# Precision.


def test_bfloat16_products_train_float32_weights_that_are_measured_in_float32(tiny_graph, tmp_path):
    full, reduced = (a_training(tiny_graph, tmp_path, precision=name) for name in ("float32", "bfloat16"))
    first, second = (training.epoch(0)["steps"][0]["loss"] for training in (full, reduced))
    assert first != second
    assert first == pytest.approx(second, rel=0.01)
    assert {parameter.dtype for parameter in reduced.model.parameters()} == {torch.float32}
    measured = [
        training.dev.measure(full.average, tiny_graph, training.scales)[1.0].tolist() for training in (full, reduced)
    ]
    assert measured[0] == measured[1]


@pytest.mark.parametrize(("native", "kept"), [(True, "bfloat16"), (False, "float32")])
def test_a_model_says_in_what_it_was_trained(
    native, kept, tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    monkeypatch.setattr("gnnretrieval.encoders.loading.computes_in_bfloat16", lambda device: native)
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features)
    assert train_gnn(*inputs, TrainSettings(epochs=1), tmp_path / "model").config["precision"] == kept


# Decay towards the identity.


def test_a_strong_pull_holds_the_weights_at_their_start(tiny_graph, tmp_path):
    free = a_training(tiny_graph, tmp_path)
    held = a_training(tiny_graph, tmp_path, identity_decay=1e6)
    for training in (free, held):
        training.epoch(0)
    for one, start in zip(held.model.parameters(), held.identity, strict=True):
        torch.testing.assert_close(one, start)
    assert any(
        not torch.allclose(one, start) for one, start in zip(free.model.parameters(), free.identity, strict=True)
    )


# The cross-encoder's probabilities on the edges.


@pytest.fixture(scope="module")
def judged_graph(tiny_dataset, tiny_features, tiny_cross_encoder, tmp_path_factory):
    settings = GraphSettings(
        k=5,
        label_edges=False,
        edge_features=("score", "probability"),
        cross_encoder=str(tiny_cross_encoder),
        pair_tokens=64,
    )
    return build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path_factory.mktemp("g") / "graph")


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_distillation_brings_the_ranking_of_a_querys_passages_to_the_cross_encoders(judged_graph, tmp_path, candidates):
    store = judged_graph
    wanted = np.random.default_rng(0).uniform(0.05, 0.95, (store.num_queries, store.k)).astype(np.float16)
    taught = store.view(k=5)
    cheap = np.array(store.edge_arrays.cheap)
    cheap[:, :, 1] = wanted
    taught.__dict__["edge_arrays"] = store.edge_arrays._replace(cheap=cheap)
    losses = []
    for share in (0.0, 0.9):
        training = a_training(taught, tmp_path, distillation=share, epochs=12, candidates=candidates, mask_ratio=0.9)
        found = [training.epoch(epoch)["steps"][-1]["loss"] for epoch in range(12)]
        losses.append(found)
    assert losses[1][0] < 0.6 * losses[0][0]  # the divergence is another number than the contrastive loss
    assert losses[1][-1] < 0.95 * losses[1][0]


def test_distillation_is_the_divergence_of_the_scores_from_the_probabilities(judged_graph, tmp_path):
    training = a_training(judged_graph, tmp_path, distillation=0.999999, candidates="corpus", epochs=1)
    store = judged_graph
    asked = []
    loss = training._loss
    training._loss = lambda step, queries, vectors, graph: (
        asked.append((queries, training.model(graph).detach(), loss(step, queries, vectors, graph))) or asked[-1][2]
    )
    training.epoch(0)
    queries, vectors, value = asked[0]
    passages = training.similarity.prepare(vectors)
    expected = []
    for query in queries:
        own = torch.from_numpy(np.asarray(store.query_features[query], dtype=np.float32))
        scores = training.scale * passages[store.neighbors[query].astype(np.int64)] @ own
        teacher = torch.from_numpy(np.asarray(store.edge_arrays.cheap[query, :, 1], dtype=np.float32)).logit(eps=1e-4)
        share = teacher.softmax(0)
        expected.append(float((share * (share.log() - scores.log_softmax(0))).sum()))
    assert float(value.detach()) == pytest.approx(np.mean(expected), rel=1e-3)


# Denoised positives and negatives.


def some_examples(dataset: Dataset, place, examples: list[Example]) -> Examples:
    place.mkdir()
    write_examples(place / "examples.jsonl", examples)
    return Examples(place, {})


def test_mined_positives_join_the_labels_and_mined_negatives_are_drawn(tiny_graph, tiny_dataset, tmp_path):
    examples = some_examples(
        Dataset.open(tiny_dataset),
        tmp_path / "examples",
        [
            Example("train-05", (Candidate("p33", "mined"),), (Candidate("p20", "mined"), Candidate("p21", "mined"))),
            Example("train-06", (Candidate("p06", "mined"),), (Candidate("p07", "mined"), Candidate("p22", "mined"))),
            Example("not-in-the-graph", (Candidate("p01", "mined"),), ()),
        ],
    )
    learned = LearnedFrom.of(tiny_graph, [examples])
    assert {tuple(pair) for pair in learned.labels.tolist()} == {
        *(tuple(pair) for pair in tiny_graph.labels.tolist()),
        (5, 33),
    }
    assert (np.diff(learned.labels @ np.array([1000, 1])) > 0).all()
    rng = np.random.default_rng(0)
    draw = learned.draw_negatives
    assert draw(tiny_graph.neighbors, np.array([5]), 4, rng).tolist() == [20, 21]
    assert draw(tiny_graph.neighbors, np.array([6]), 4, rng).tolist() == [7, 22]
    assert len(draw(tiny_graph.neighbors, np.array([5]), 1, rng)) == 1
    of_others = draw(tiny_graph.neighbors, np.array([5, 7]), 9, rng)
    assert set(of_others) == {20, 21, *tiny_graph.neighbors[7].tolist()} - {7}


def test_examples_of_another_dataset_are_refused(tiny_graph, tiny_dataset, tmp_path):
    examples = some_examples(
        Dataset.open(tiny_dataset), tmp_path / "examples", [Example("other", (Candidate("p01", "mined"),), ())]
    )
    with pytest.raises(GnnRetrievalError, match="none of these examples has a query"):
        LearnedFrom.of(tiny_graph, [examples])


# Never worse: what is not believed is not used.


def scripted(monkeypatch, gains: np.ndarray) -> None:
    monkeypatch.setattr(
        DevSet,
        "measure",
        lambda self, model, store, scales, *args: {
            **dict.fromkeys(scales, np.zeros(len(self))),
            0.0: np.full(10, 0.3),
            1.0: 0.3 + gains,
        },
    )


def test_a_gain_that_may_be_chance_leaves_the_dual_encoder_to_the_bit(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, said
):
    scripted(monkeypatch, np.array([0.5, -0.4, 0.3, -0.2, 0.4, -0.3, 0.2, -0.1, 0.1, 0.0]))
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features)
    model = train_gnn(*inputs, TrainSettings(**SHORT), tmp_path / "model")
    assert model.meta["dev"]["chosen"] == {"epoch": 0, "context_scale": 0.0, "RR@10": pytest.approx(0.3)}
    assert model.meta["dev"]["best"]["gain"] == pytest.approx(0.05)
    assert 0.2 < model.meta["dev"]["best"]["p"] < 0.4
    assert any("may be chance (p = 0." in line for line in said)
    embeddings = embed_passages(model, tiny_graph, tmp_path / "embeddings")
    np.testing.assert_array_equal(
        embeddings.passages, tiny_graph.similarity.prepare(torch.tensor(tiny_graph.passage_features)).half().numpy()
    )
    believed = train_gnn(*inputs, TrainSettings(**SHORT, evidence=0.5), tmp_path / "believed")
    assert believed.meta["dev"]["chosen"]["context_scale"] == 1.0


def test_a_gain_beyond_chance_is_used(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch):
    scripted(monkeypatch, np.array([0.5, 0.4, 0.3, 0.2, 0.4, 0.3, 0.2, 0.1, 0.1, 0.0]))
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features)
    model = train_gnn(*inputs, TrainSettings(**SHORT), tmp_path / "model")
    assert load_file(model.path / "model.safetensors")["context_scale"] == 1.0


def test_the_log_has_a_line_a_step_and_one_a_measurement_that_the_log_page_reads(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    from gnnretrieval.training.log_page import read_log

    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features)
    model = train_gnn(*inputs, TrainSettings(**{**SHORT, "batch_size": 5}), tmp_path / "model")
    log = read_log(model.path / "log.jsonl")
    assert [record.step for record in log.steps] == list(range(1, 10))
    assert [record.epoch for record in log.measurements] == [1, 2, 3]
    assert list(log.measurements[0].dev) == ["RR@10", "dual-encoder", "λ = 0.0", "λ = 0.5", "λ = 1.0"]
    record = json.loads((model.path / "log.jsonl").read_text().splitlines()[-1])
    assert record["dev"]["RR@10"] == record["dev"][f"λ = {record['context_scale']}"]


# By which edges passages hear.


def test_passages_that_are_hard_negatives_hear_no_query_that_is_labelled_with_them(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    seen: list[np.ndarray] = []
    edges_into = store_module.edges_into

    def spied(*args):
        found = edges_into(*args)
        seen.append(found[0])
        return found

    monkeypatch.setattr(store_module, "edges_into", spied)
    monkeypatch.setattr(subgraph_module, "edges_into", spied)
    dataset = Dataset.open(tiny_dataset)
    settings = TrainSettings(**SHORT, passage_edges="hard-negatives", evidence=1.0)
    model = train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / "model")
    embed_passages(model, tiny_graph, tmp_path / "embeddings")
    labels = set(np.flatnonzero(tiny_graph.label_edges()))
    assert labels
    assert len(seen) > 5
    assert all(not labels & set(edges) for edges in seen)
    monkeypatch.undo()
    module = model.load()
    module.context_scale.fill_(1.0)
    model.load = lambda device="cpu": module
    embeddings = embed_passages(model, tiny_graph, tmp_path / "at-one")
    everyone = np.arange(tiny_graph.num_passages)
    with torch.no_grad():
        heard, all_edges = (
            tiny_graph.similarity.prepare(module(GraphTensors(store).batch(everyone))).numpy()
            for store in (model.view(tiny_graph), tiny_graph)
        )
    np.testing.assert_allclose(embeddings.passages, heard, atol=2e-3)
    assert np.abs(embeddings.passages - all_edges).max() > 0.01
    del model.load
    with pytest.raises(ArtifactError, match="trained with passage_edges = hard-negatives"):
        train_gnn(tiny_graph, dataset, tiny_features, TrainSettings(**SHORT), tmp_path / "next", start=model)


# Other layers in the place of attention.


@pytest.mark.parametrize("layer", [layer for layer in GRAPH_LAYERS if layer != "gat"])
def test_every_layer_trains_is_kept_and_embeds(layer, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    settings = TrainSettings(**{**SHORT, "epochs": 40}, layer=layer, evidence=1.0)
    model = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")
    losses = [json.loads(line).get("loss") for line in (model.path / "log.jsonl").read_text().splitlines()]
    losses = [loss for loss in losses if loss is not None]
    assert np.mean(losses[-20:]) < np.mean(losses[:20])
    assert f"`{layer}` replaces its graph attention" in (model.path / "README.md").read_text(encoding="utf-8")
    loaded = model.load()
    started = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim, settings.encoder, layer)
    moved = {name for name, value in loaded.state_dict().items() if not value.equal(started.state_dict()[name])}
    learns = any(True for _ in started.queries_to_passages.parameters())
    assert any(name.startswith("queries_to_passages.conv.") for name in moved) == learns
    embedded = embed_passages(model, tiny_graph, tmp_path / "embeddings")
    assert np.isfinite(embedded.passages).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layer": "sage", "encoder": {"heads": 4}}, "layer = sage has no attention"),
        ({"layer": "sage", "encoder": {"dropout": 0.5}}, "layer = sage has no attention"),
        ({"mask_unit": "none", "mask_ratio": 0.5}, "mask_unit = none masks nothing, and has no use for mask_ratio"),
        ({"candidates": "corpus", "hard_negatives": 2}, "has no use for hard_negatives: leave hard_negatives out, or"),
        ({"transfer_evidence": 0.5}, "transfer_evidence is for epochs = 0"),
    ],
)
def test_settings_without_an_effect_are_refused(given, says, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    settings = TrainSettings.parse({**SHORT, **given})
    with pytest.raises(GnnRetrievalError, match=says):
        train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")
    with pytest.raises(InputError, match=says):
        Recipe.parse({"name": "tiny", "train": settings.model_dump()})


@pytest.mark.parametrize(
    ("of_start", "given", "says"),
    [
        ({"layer": "mean"}, {"layer": "gat"}, "trained with layer = mean"),
        ({"layer": "gat"}, {"layer": "gatv2"}, "trained with layer = gat"),
        (
            {"encoder": {"gate": "constant", "gate_start": 0.8}},
            {"encoder": {"gate": "constant"}, "epochs": 0},
            "gate_start = 0.8",
        ),
    ],
)
def test_another_layer_or_another_constant_in_the_gates_place_is_no_start(
    of_start, given, says, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    inputs = tiny_graph, Dataset.open(tiny_dataset), tiny_features
    start = train_gnn(*inputs, TrainSettings.parse({**SHORT, "epochs": 1, **of_start}), tmp_path / "start")
    with pytest.raises(ArtifactError, match=says):
        train_gnn(*inputs, TrainSettings.parse({**SHORT, **given}), tmp_path / "model", start=start)


@pytest.mark.parametrize("mode", ["frozen", "joint"])
def test_the_option_precision_is_that_of_training(mode):
    given = settings_from(TrainSettings, {"layer": "gat", "mode": mode, "precision": "float32"})
    assert TrainSettings.parse(given).precision == "float32"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("layer", ["linear", "gat"])
@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_here_is_refused_in_a_sentence(
    layer, device, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    settings = TrainSettings.parse({"layer": layer})
    with pytest.raises(InputError, match=f"^device '{device}' cannot be used: "):
        train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model", device=device)
