"""Joint training of dual-encoder and GNN (Algorithm 1, lines 6-11)."""

import json
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.nn import GNNEncoder
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.towers import Item
from gnnretrieval.training.gnn.candidates import step_of
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.joint import JointEncoders
from gnnretrieval.training.gnn.joint_messages import QueryEncoderTraining
from gnnretrieval.training.gnn.loop import ENCODER, GNNTraining

EXACT = {"precision": "float32"}
SHORT = {
    **EXACT,
    "mode": "joint",
    "epochs": 2,
    "mask_unit": "query",
    "batch_size": 6,
    "learning_rate": 0.01,
    "hard_negatives": 2,
    "context_scales": (0.5, 1.0),
    "evidence": 1.0,
    "patience": 100,
}


def settings_of(joint: dict | None = None, **settings) -> TrainSettings:
    return TrainSettings(**{**SHORT, **settings, "dual_encoder": {"encoder_learning_rate": 1e-3, **(joint or {})}})


def a_training(store, place, settings: TrainSettings) -> GNNTraining:
    dev_texts = store.texts().texts_of_queries([0, 1, 2, 3])
    dev = DevSet(np.asarray(store.query_features[:4]), [[0], [1], [2], [3]], store.similarity)
    encoders = None
    if settings.is_joint:
        encoders = JointEncoders(store, dev_texts, settings, torch.device("cpu"))
    return GNNTraining(store, dev, settings, place, encoders=encoders)


def moved(model: GNNEncoder) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture
def one_batch() -> np.ndarray:
    return np.array([2, 9, 17, 33])


def gradients(training: GNNTraining) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    assert training.encoders is not None
    return [p.grad.clone() for p in training.model.parameters() if p.grad is not None], [
        p.grad.clone() for p in training.encoders.parameters if p.grad is not None
    ]


def step_gradient(training: GNNTraining, batch: np.ndarray) -> float:
    """The gradient of one batch, by the lines of training."""
    store = training.store
    visible = np.ones(store.num_queries, dtype=bool)
    visible[batch] = False
    step = step_of(batch, training.labels, None, np.array([5, 21]))
    training.model.train()
    return training._joint_gradient(step, batch, store.subgraph(step.candidates, visible))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("kind", ["both", "queries"])
def test_what_is_recomputed_at_the_start_is_what_was_encoded(similarity, kind, tiny_dataset, tiny_settings, tmp_path):
    """Also of an encoder with vectors of length 1 that are compared by the dot product."""
    dataset = Dataset.open(tiny_dataset)
    features = encode_dataset(
        dataset, tiny_settings.model_copy(update={"similarity": similarity}), tmp_path / "features"
    )
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    if kind == "queries":
        settings = TrainSettings.parse({"layer": "linear", "mode": "joint", **EXACT})
        taught, held_out = np.ones(store.num_queries, dtype=bool), held_out_queries(store, dataset, features, 0)
        towers = QueryEncoderTraining.of(store, held_out, settings, tmp_path / "made", taught).task.towers
        towers["query"].module.eval()
        texts = store.texts().texts_of_queries([*range(store.num_queries)])
        found = [(encoded(towers["query"], towers["query"].items("query", texts), 4096).numpy(), store.query_features)]
        texts = store.texts().texts_of_passages([*range(store.num_passages)])
        items = towers["passage"].items("passage", texts)  # of the encoder that is saved with the model
        found.append((encoded(towers["passage"], items, 4096).numpy(), store.passage_features))
    else:
        training = a_training(store, tmp_path / "run", settings_of())
        recomputed, dev = training.encoders.recomputed(training.dev, None, training.shown)
        found = [
            (recomputed.passage_features, store.passage_features),
            (recomputed.query_features, store.query_features),
        ]
        torch.testing.assert_close(dev.queries, training.dev.queries, atol=2e-3, rtol=0)
    for recomputed_vectors, stored in found:
        np.testing.assert_allclose(recomputed_vectors, stored, atol=2e-3)


# One step of Algorithm 1, written out.


def test_a_step_is_algorithm_1_line_by_line(tiny_graph, tmp_path, one_batch):
    training = a_training(tiny_graph, tmp_path, settings_of({"gradient_cache": False}))
    moved(training.model)
    assert training.encoders is not None
    loss = step_gradient(training, one_batch)
    of_gnn, of_encoder = gradients(training)
    training.optimizer.zero_grad()

    store, model, texts = tiny_graph, training.model, tiny_graph.texts()
    positives = {int(q): {int(p) for q2, p in store.labels if q2 == q} for q in one_batch}
    passages = sorted({p for found in positives.values() for p in found} | {5, 21})  # line 7: P_b
    visible = [q for q in range(store.num_queries) if q not in set(one_batch.tolist())]  # Q_g
    adjacent = [q for q in visible if set(store.neighbors[q].tolist()) & set(passages)]
    query_tower, passage_tower = training.encoders.towers["query"], training.encoders.towers["passage"]

    def rows_of(tower, lines):
        return tower.rows([Item("", tuple(ids)) for ids in tower.tokens(lines)])

    h_asked = rows_of(query_tower, texts.texts_of_queries(one_batch.tolist()))
    h_p = rows_of(passage_tower, texts.texts_of_passages(passages))
    h_q = rows_of(query_tower, texts.texts_of_queries(adjacent))
    cached = torch.from_numpy(np.asarray(store.passage_features, dtype=np.float32))
    edges = torch.from_numpy(np.asarray(store.edge_arrays.cheap, dtype=np.float32))  # (n, k, d_e)

    def attend(layer, target, sources, features, loop):
        """Eq. 3-5 of one node."""
        of_source, of_target = sources @ layer.lin_src.weight.T, target @ layer.lin_dst.weight.T
        own = target @ layer.lin_src.weight.T
        of_edges = (features - model.edge_mean) / model.edge_deviation @ layer.lin_edge.weight.T
        a_s, a_t, a_e = layer.att_src[0, 0], layer.att_dst[0, 0], layer.att_edge[0, 0]
        logits = of_source @ a_s + of_target @ a_t + of_edges @ a_e
        alone = own @ a_s + of_target @ a_t + (loop @ layer.lin_edge.weight.T) @ a_e
        weights = torch.nn.functional.leaky_relu(torch.cat([logits, alone[None]]), 0.2).softmax(0)
        return weights[:-1] @ of_source + weights[-1] * own

    interactive = {}
    for row, query in enumerate(adjacent):  # line 8: eq. 6 over cached passages; line 9: eq. 7
        sources = cached[store.neighbors[query].astype(np.int64)]
        context = attend(model.passages_to_queries, h_q[row], sources, edges[query], model.query_loop)
        interactive[query] = model.query_update(torch.cat([context, h_q[row]]))
    vectors = []
    for row, passage in enumerate(passages):  # line 9: eq. 8-10
        found = [(q, r) for q in adjacent for r in range(store.k) if store.neighbors[q, r] == passage]
        sources = torch.stack([interactive[q] for q, _ in found]) if found else h_p.new_zeros(0, store.dimension)
        features = torch.stack([edges[q, r] for q, r in found]) if found else edges.new_zeros(0, store.edge_dim)
        context = attend(model.queries_to_passages, h_p[row], sources, features, model.passage_loop)
        gate = torch.sigmoid(model.filter_gate.lin(torch.cat([context, h_p[row]])))
        vectors.append(gate * context + h_p[row])
    scores = training.scale * h_asked @ store.similarity.prepare(torch.stack(vectors)).T  # line 10: eq. 11
    losses = []
    for row, query in enumerate(one_batch.tolist()):  # eq. 12, its other positives masked
        for positive in positives[query]:
            own = scores[row, passages.index(positive)]
            others = [scores[row, c] for c, p in enumerate(passages) if p not in positives[query]]
            losses.append(torch.logsumexp(torch.stack([own, *others]), 0) - own)
    expected = torch.stack(losses).mean()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    for found, by_hand in zip((of_gnn, of_encoder), gradients(training), strict=True):
        for one, other in zip(found, by_hand, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-3, atol=1e-5)
    assert max(float(one.abs().max()) for one in of_encoder) > 1e-4


def test_gradient_caching_gives_the_same_step(tiny_graph, tmp_path, one_batch):
    found = []
    for cached, budget in ((False, 4096), (True, 4096), (True, 40)):
        training = a_training(tiny_graph, tmp_path, settings_of({"gradient_cache": cached, "token_budget": budget}))
        moved(training.model)
        loss = step_gradient(training, one_batch)
        found.append((loss, *gradients(training)))
    for other in found[1:]:
        assert other[0] == pytest.approx(found[0][0], rel=1e-6)
        for ones, theirs in zip(other[1:], found[0][1:], strict=True):
            for one, their in zip(ones, theirs, strict=True):
                torch.testing.assert_close(one, their, rtol=1e-3, atol=1e-6)


# Learning rate 0 for the encoder: the frozen run.


def test_with_learning_rate_0_for_the_encoder_it_equals_frozen_training(tiny_graph, tmp_path):
    joint = a_training(tiny_graph, tmp_path, settings_of({"encoder_learning_rate": 0.0}))
    encoders, texts = joint.encoders, tiny_graph.texts()
    assert encoders is not None
    features = (  # not rounded to float16, as the stored ones are
        encoded(encoders.towers[side], encoders._items(side, read(list(range(count)))), 4096).numpy()
        for side, read, count in (
            ("passage", texts.texts_of_passages, tiny_graph.num_passages),
            ("query", texts.texts_of_queries, tiny_graph.num_queries),
        )
    )
    unrounded = tiny_graph.with_features(*features)
    frozen = a_training(unrounded, tmp_path, TrainSettings(**{**SHORT, "mode": "frozen"}, negatives="all"))
    for training in (joint, frozen):
        moved(training.model)  # at the identity some gradients are nearly 0, and Adam makes steps of their rounding
        for epoch in range(2):
            training.progress = training.progress._replace(epoch=epoch)
            training.epoch(epoch)
    moved_by = 0.0
    start = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim)
    moved(start)
    for (name, one), other, first in zip(
        joint.average.named_parameters(), frozen.average.parameters(), start.parameters(), strict=True
    ):
        moved_by = max(moved_by, float((other - first).detach().abs().max()))
        # Adam makes a step of what is rounding where a gradient is nearly 0: a few weights differ by a tenth of one.
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-3, msg=lambda text, name=name: f"{name}: {text}")
        assert float((one - other).detach().abs().mean()) < 1e-4, name
    assert moved_by > 0.02
    again = JointEncoders(tiny_graph, ["a"], TrainSettings(**EXACT), torch.device("cpu"))
    assert all(torch.equal(one, other) for one, other in zip(joint.encoders.parameters, again.parameters, strict=True))


# The whole run.


@pytest.fixture(scope="module")
def joint_model(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    place = tmp_path_factory.mktemp("joint") / "model"
    return train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings_of(), place)


@pytest.fixture(scope="module")
def its_features(joint_model, tiny_dataset, tmp_path_factory):
    settings = EncoderSettings(checkpoint=str(joint_model.path), precision="float32")
    return encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path_factory.mktemp("its") / "features")


def lines(model) -> Iterator[dict]:
    return map(json.loads, (model.path / "log.jsonl").read_text().splitlines())


def test_both_learn_and_the_model_carries_its_encoder(joint_model, tiny_graph, tiny_checkpoint):
    assert joint_model.has_encoder
    before = load_file(tiny_checkpoint / "model.safetensors")
    after = load_file(joint_model.path / "passage" / "model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    measured = [record for record in lines(joint_model) if "dev" in record]
    assert [record["epoch"] for record in measured] == [0, 1, 2]
    assert not any(name.startswith(ENCODER) for name in load_file(joint_model.path / "model.safetensors"))


def test_what_is_embedded_is_what_was_measured_on_dev(joint_model, its_features, tiny_graph, tiny_dataset, tmp_path):
    embeddings = embed_passages(joint_model, tiny_graph, tmp_path / "embeddings", features=its_features)
    dataset = Dataset.open(tiny_dataset)
    judged = dataset.split("dev")
    asked = its_features.queries[its_features.rows_of(judged)].astype(np.float32)
    scores = asked @ embeddings.passages.astype(np.float32).T
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    reciprocal = []
    for of_query, relevant in zip(scores, judged.values(), strict=True):
        rank = 1 + int((of_query > of_query[[row_of[p] for p in relevant]].max()).sum())
        reciprocal.append(1 / rank if rank <= 10 else 0)
    assert np.mean(reciprocal) == pytest.approx(joint_model.meta["dev"]["chosen"]["RR@10"], abs=0.02)
    assert embeddings.meta["encoder"]["checkpoint"].endswith("passage")
    sources = GraphTensors(joint_model.view(tiny_graph, its_features)).batch(np.array([0])).sources
    cached = tiny_graph.passage_features[tiny_graph.subgraph(np.array([0])).sources].astype(np.float32)
    assert torch.equal(sources, torch.from_numpy(cached))  # eq. 6 keeps the embeddings it was trained with


def test_features_of_another_encoder_or_none_are_refused(joint_model, tiny_graph, tiny_features, tmp_path):
    with pytest.raises(ArtifactError, match=r"its dual-encoder was trained with it\. Encode the dataset"):
        embed_passages(joint_model, tiny_graph, tmp_path / "embeddings")
    with pytest.raises(ArtifactError, match="these features are not by the encoder of"):
        embed_passages(joint_model, tiny_graph, tmp_path / "embeddings", features=tiny_features)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("epoch", [1, 2])
def test_interrupted_it_resumes_to_the_bit(
    joint_model, tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, epoch
):
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings_of(), tmp_path / "model")
    measured = []
    measure = DevSet.measure

    def interrupting(self, *args):
        measured.append(1)
        if len(measured) == epoch + 1:
            raise KeyboardInterrupt
        return measure(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(DevSet, "measure", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train_gnn(*inputs)
    resumed = train_gnn(*inputs)
    assert resumed.meta["files"] == joint_model.meta["files"]
    assert resumed.meta["dev"] == joint_model.meta["dev"]


def test_where_nothing_is_gained_the_dual_encoder_stays_as_it_came(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    values = iter([0.5, 0.4, 0.4])

    def measure(self, model, store, scales, *args):
        value = next(values)
        return {scale: np.full(len(self), value) for scale in scales}

    monkeypatch.setattr(DevSet, "measure", measure)
    dataset = Dataset.open(tiny_dataset)
    model = train_gnn(tiny_graph, dataset, tiny_features, settings_of(), tmp_path / "model")
    assert not model.has_encoder
    assert model.meta["dev"]["chosen"] == {"epoch": 0, "context_scale": 0.0, "RR@10": 0.5}
    embeddings = embed_passages(model, tiny_graph, tmp_path / "embeddings")
    assert np.array_equal(
        embeddings.passages, tiny_graph.similarity.prepare_array(tiny_graph.passage_features).astype(np.float16)
    )


def test_where_joint_training_gains_nothing_the_model_it_started_from_is_kept(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, said
):
    values = iter([0.8, 0.7, 0.6])

    def measure(self, model, store, scales, *args):
        value = next(values)
        return {scale: np.full(len(self), value if scale == 1.0 else 0.3) for scale in scales}

    monkeypatch.setattr(DevSet, "measure", measure)
    inputs = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings_of(evidence=0.05), tmp_path / "model")
    model = train_gnn(*inputs)
    assert not model.has_encoder
    assert model.meta["dev"]["chosen"] == {"epoch": 0, "context_scale": 1.0, "RR@10": pytest.approx(0.8)}
    assert model.meta["dev"]["believed"]
    assert any(line.startswith("kept epoch 0 with context scale 1") for line in said)
    assert "may be chance" not in " ".join(said)
    nothing = "no epoch gained on dev over the untrained GNN"
    assert any(nothing in line for line in said)
    assert nothing in (model.path / "README.md").read_text()
    with pytest.raises(
        ArtifactError, match="joint training gained nothing, so it kept the one of its graph's features"
    ):
        trained_settings(EncoderSettings(checkpoint=str(model.path)))


def test_it_goes_on_from_a_frozen_gnn_encoder(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    frozen = TrainSettings(epochs=3, batch_size=6, learning_rate=0.01, context_scales=(1.0,), evidence=1.0)
    first = train_gnn(tiny_graph, dataset, tiny_features, frozen, tmp_path / "frozen")
    settings = settings_of({"encoder_learning_rate": 1e-9}, learning_rate=1e-9, epochs=1)
    second = train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / "joint", start=first)
    one, other = (load_file(model.path / "model.safetensors") for model in (first, second))
    for name in one.keys() - {"context_scale"}:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-5)
    if second.has_encoder:
        with pytest.raises(ArtifactError, match="trained jointly with another dual-encoder than this graph's"):
            train_gnn(tiny_graph, dataset, tiny_features, frozen, tmp_path / "third", start=second)
    other_shape = settings_of(encoder={"heads": 2})
    with pytest.raises(ArtifactError, match="this GNN-encoder has other settings"):
        train_gnn(tiny_graph, dataset, tiny_features, other_shape, tmp_path / "fourth", start=first)


def test_measured_among_a_pool_of_passages(tiny_graph, tmp_path):
    training = a_training(tiny_graph, tmp_path, settings_of({"dev_passages": 25}))
    pool = training.pool
    assert pool is not None
    assert 20 <= len(pool) <= 40
    assert set(training.dev.relevant_rows.tolist()) <= set(pool.tolist())
    record = training.epoch(0)
    assert 0 <= record["dev"] <= 1


# What is refused.


def test_an_encoder_that_has_other_weights_now_is_refused(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, tiny_checkpoint
):
    place = tmp_path / "graph"
    shutil.copytree(tiny_graph.path, place)
    meta = json.loads((place / "meta.json").read_text())
    meta["checkpoint_hash"] = {"query": "0" * 64, "passage": "0" * 64}
    (place / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ArtifactError, match="have changed since the graph was built"):
        train_gnn(open_graph(place), Dataset.open(tiny_dataset), tiny_features, settings_of(), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_settings_that_do_not_fit_are_said():
    with pytest.raises(InputError, match="encode the whole corpus at every step"):
        TrainSettings.parse({"mode": "joint", "candidates": "corpus"})
    with pytest.raises(InputError, match="need mode = joint"):
        TrainSettings.parse({"dual_encoder": {"encoder_learning_rate": 1e-5}})
    assert (TrainSettings().epochs, TrainSettings().learning_rate) == (80, 2e-3)
    joint = TrainSettings(mode="joint")
    assert (joint.epochs, joint.learning_rate, joint.dual_encoder.encoder_learning_rate) == (5, 5e-5, 2e-6)
    assert TrainSettings(mode="joint", epochs=7).epochs == 7


def test_distillation_without_probabilities_is_refused(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    settings = TrainSettings(distillation=0.5)
    with pytest.raises(
        GnnRetrievalError, match=r"no probability to distil.*features score,reciprocal_rank,bm25,label,probability\)"
    ):
        train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
