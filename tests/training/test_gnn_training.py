import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import open_graph
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph, passage_side
from gnnretrieval.nn import GNNEncoder, GNNEncoderSettings
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn import loop as gnn
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.dry_run import rehearse
from gnnretrieval.training.gnn.examples import LearnedFrom
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.loop import GNNTraining

SHORT = {
    "epochs": 4,
    "mask_ratio": 0.2,
    "mask_unit": "passage",
    "batch_size": 5,
    "learning_rate": 0.01,
    "context_scales": (0.5, 1.0),
    "patience": 100,
}
DROPPING = GNNEncoderSettings(heads=2, dropout=0.3)


def train(graph, dataset, features, out, **settings):
    return train_gnn(graph, Dataset.open(dataset), features, TrainSettings(**{**SHORT, **settings}), out)


def weights_of(model) -> dict[str, torch.Tensor]:
    return load_file(model.path / "model.safetensors")


def log_of(model) -> list[dict]:
    return [json.loads(line) for line in (model.path / "log.jsonl").read_text().splitlines()]


# Nothing of a masked query reaches the loss through the graph.


def in_memory(store: Graph) -> Graph:
    """The same store with arrays that may be changed."""
    copy = open_graph(store.path)
    for name in ("neighbors", "scores", "passage_features", "query_features", "labels"):
        copy.__dict__[name] = np.array(getattr(store, name))
    copy.__dict__["_neighbors"] = copy.neighbors
    copy.__dict__["edge_arrays"] = store.edge_arrays._replace(cheap=np.array(store.edge_arrays.cheap))
    return refreshed(copy)


def refreshed(store: Graph) -> Graph:
    store.__dict__["indptr"], store.__dict__["edges"] = passage_side(store.neighbors, store.num_passages)
    return store


def without_trace_of(store: Graph, masked: np.ndarray, seed: int = 5) -> Graph:
    """The store with other features, other neighbours and other labels for the masked queries."""
    rng = np.random.default_rng(seed)
    other = in_memory(store)
    count = int(masked.sum())
    other.query_features[masked] = rng.normal(size=(count, store.dimension))
    other.neighbors[masked] = [rng.permutation(store.num_passages)[: store.k] for _ in range(count)]
    of_masked = masked[other.labels[:, 0]]
    other.labels[of_masked, 1] = rng.integers(store.num_passages, size=int(of_masked.sum()))
    return refreshed(other)


@pytest.fixture
def masked(tiny_graph) -> np.ndarray:
    chosen = np.zeros(tiny_graph.num_queries, dtype=bool)
    chosen[np.random.default_rng(0).permutation(tiny_graph.num_queries)[:12]] = True
    return chosen


def moved_from_the_start(model: GNNEncoder) -> GNNEncoder:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def test_embeddings_over_the_visible_queries_do_not_depend_on_the_masked_ones_by_a_bit(tiny_graph, masked):
    model = moved_from_the_start(GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim)).eval()
    other = without_trace_of(tiny_graph, masked)
    other.edge_arrays.cheap[masked] = 100.0
    rows = np.arange(tiny_graph.num_passages)
    before = model(GraphTensors(tiny_graph).batch(rows, ~masked))
    assert torch.equal(before, model(GraphTensors(other).batch(rows, ~masked)))
    assert not torch.equal(model(GraphTensors(tiny_graph).batch(rows)), model(GraphTensors(other).batch(rows)))


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_no_masked_query_reaches_the_loss_through_the_graph(tiny_graph, masked, tmp_path, monkeypatch, candidates):
    monkeypatch.setattr(gnn, "mask_queries", lambda *args: masked)
    negatives = np.arange(tiny_graph.num_passages)  # so that both stores score the same candidates
    monkeypatch.setattr(LearnedFrom, "draw_negatives", lambda *args: negatives)
    settings = TrainSettings(**{**SHORT, "batch_size": 12}, candidates=candidates, negatives="all")

    def embeddings_in_the_loss(store: Graph) -> dict[int, torch.Tensor]:
        training = GNNTraining(store, a_dev_set(store), settings, tmp_path)
        moved_from_the_start(training.model)
        steps, outputs = [], []
        monkeypatch.setattr(gnn, "step_of", lambda *args, step_of=step_of: steps.append(step_of(*args)) or steps[-1])
        training.model.register_forward_hook(lambda module, args, output: outputs.append(output.detach()))
        training.epoch(0)
        assert len(steps) == len(outputs) == 1
        assert set(steps[0].queries) == set(np.flatnonzero(masked))
        return dict(zip(steps[0].candidates.tolist(), outputs[0], strict=True))

    step_of = gnn.step_of
    before, after = embeddings_in_the_loss(tiny_graph), embeddings_in_the_loss(without_trace_of(tiny_graph, masked))
    assert list(before) == list(after) == negatives.tolist()
    different = [row for row in before if not torch.equal(before[row], after[row])]
    assert different == []
    seen = in_memory(tiny_graph)
    seen.query_features[np.flatnonzero(~masked)] += 1
    changed = embeddings_in_the_loss(seen)
    assert not any(torch.equal(before[row], changed[row]) for row in before if tiny_graph.degrees()[row] > 12)


def test_a_masked_querys_label_edges_and_features_do_not_reach_the_graph_side(
    tiny_graph, tiny_dataset, tiny_features, masked, tmp_path
):
    """Labels are edges and an edge feature: those of masked queries may be anything."""
    settings = GraphSettings(k=3, label_edges=True, edge_features=("score", "label"))
    store = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph")
    model = moved_from_the_start(GNNEncoder(store.dimension, store.edge_dim)).eval()
    everything = np.arange(store.num_passages)
    other = without_trace_of(store, masked)
    other.edge_arrays.cheap[masked] = 1 - other.edge_arrays.cheap[masked]
    one, changed = (model(GraphTensors(some).batch(everything, ~masked)) for some in (store, other))
    assert torch.equal(one, changed)
    assert not torch.equal(model(GraphTensors(store).batch(everything)), model(GraphTensors(other).batch(everything)))


def a_dev_set(store: Graph) -> DevSet:
    return DevSet(np.asarray(store.query_features[:4]), [[0], [1], [2], [3]], store.similarity)


def test_hidden_queries_have_no_part_in_training_at_all(tiny_graph, masked, tmp_path):
    other = without_trace_of(tiny_graph, masked)
    other.edge_arrays.cheap[masked] = 100.0
    settings = TrainSettings(**SHORT, candidates="batch")
    for name, store in (("a", tiny_graph), ("b", other)):
        (tmp_path / name).mkdir()
        dev = DevSet(np.asarray(tiny_graph.passage_features[:4]), [[0], [1], [2], [3]], store.similarity)
        weights = GNNTraining(store, dev, settings, tmp_path / name, hidden=masked).run()
        torch.save(weights, tmp_path / f"{name}.pt")
    first, second = torch.load(tmp_path / "a.pt"), torch.load(tmp_path / "b.pt")
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert different == []


def test_only_masked_queries_are_trained_on_and_only_the_others_are_in_the_graph(tiny_graph, tmp_path, monkeypatch):
    chosen, asked, seen = [], [], []
    mask_queries, step_of, two_hops = gnn.mask_queries, gnn.step_of, Graph.subgraph
    monkeypatch.setattr(gnn, "mask_queries", lambda *args: chosen.append(mask_queries(*args)) or chosen[-1])
    monkeypatch.setattr(gnn, "step_of", lambda *args: asked.append(step_of(*args)) or asked[-1])

    def subgraph(self, passages, visible=None, **options):
        seen.append(two_hops(self, passages, visible, **options))
        return seen[-1]

    monkeypatch.setattr(Graph, "subgraph", subgraph)
    settings = TrainSettings(**{**SHORT, "mask_unit": "query"}, candidates="batch")
    training = GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path)
    monkeypatch.setattr(training.dev, "measure", lambda *args: dict.fromkeys(training.scales, np.zeros(4)))
    training.epoch(0)
    (mask,) = chosen
    assert mask.sum() == 12
    assert set(np.concatenate([step.queries for step in asked])) == set(np.flatnonzero(mask))
    assert not mask[np.concatenate([graph.queries for graph in seen])].any()


def test_copies_of_masked_queries_leave_the_graph_with_them_and_are_not_trained_on(tiny_graph, tmp_path, monkeypatch):
    """Query 2 i + 1 has the vector of query 2 i."""
    store = in_memory(tiny_graph)
    store.query_features[1::2] = store.query_features[::2]
    masked, asked, seen = np.arange(store.num_queries) % 10 == 0, [], []
    monkeypatch.setattr(gnn, "mask_queries", lambda *args: masked)
    monkeypatch.setattr(gnn, "step_of", lambda *args, step_of=gnn.step_of: asked.append(args[0]) or step_of(*args))
    of_step = GNNTraining._subgraph
    monkeypatch.setattr(GNNTraining, "_subgraph", lambda self, *args: seen.append(args[1]) or of_step(self, *args))
    training = GNNTraining(store, a_dev_set(store), TrainSettings(**SHORT), tmp_path)
    monkeypatch.setattr(training.dev, "measure", lambda *args: dict.fromkeys(training.scales, np.zeros(4)))
    training.epoch(0)
    assert set(np.concatenate(asked)) == set(np.flatnonzero(masked))
    assert all(np.array_equal(visible, np.arange(store.num_queries) % 10 > 1) for visible in seen)


def test_each_epoch_splits_the_queries_anew(tiny_graph, tmp_path, monkeypatch):
    chosen, mask_queries = [], gnn.mask_queries
    monkeypatch.setattr(gnn, "mask_queries", lambda *args: chosen.append(mask_queries(*args)) or chosen[-1])
    settings = TrainSettings(**{**SHORT, "mask_unit": "query"})
    GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path).run()
    assert len({mask.tobytes() for mask in chosen}) == settings.epochs
    assert {int(mask.sum()) for mask in chosen} == {12}


# A resumed run equals an unbroken one.


@dataclass
class Interrupting:
    """Stands for the loss and fails at one of its calls, in the middle of an epoch."""

    loss: object
    at: int
    calls: list[int] = field(default_factory=list)

    def __call__(self, *args):
        self.calls.append(1)
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return self.loss(*args)


@pytest.mark.parametrize("averaging", [0.0, 0.9])
@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_training_interrupted_in_the_middle_of_an_epoch_resumes_to_the_bit(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, candidates, averaging
):
    settings = {"candidates": candidates, "weight_averaging": averaging, "encoder": DROPPING}
    inputs = (tiny_graph, tiny_dataset, tiny_features)
    unbroken = train(*inputs, tmp_path / "unbroken", **settings)
    steps = [record["step"] for record in log_of(unbroken) if "dev" in record]
    assert len(steps) == 4
    with monkeypatch.context() as patch:
        patch.setattr(gnn, "contrastive_loss", Interrupting(gnn.contrastive_loss, steps[1] + 2))
        with pytest.raises(KeyboardInterrupt):
            train(*inputs, tmp_path / "broken", **settings)
    assert not (tmp_path / "broken").exists()
    assert (tmp_path / ".broken.partial" / "scratch" / "checkpoint.safetensors").is_file()
    again = Interrupting(gnn.contrastive_loss, 0)
    monkeypatch.setattr(gnn, "contrastive_loss", again)
    resumed = train(*inputs, tmp_path / "broken", **settings)
    assert len(again.calls) == steps[3] - steps[1]
    assert resumed.meta["files"] == unbroken.meta["files"]
    assert resumed.meta["dev"] == unbroken.meta["dev"]
    assert not (tmp_path / ".broken.partial").exists()


def test_interrupted_in_the_first_epoch_it_starts_anew(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch):
    inputs = (tiny_graph, tiny_dataset, tiny_features)
    with monkeypatch.context() as patch:
        patch.setattr(gnn, "contrastive_loss", Interrupting(gnn.contrastive_loss, 2))
        with pytest.raises(KeyboardInterrupt):
            train(*inputs, tmp_path / "broken", epochs=2)
    assert train(*inputs, tmp_path / "broken", epochs=2).hash == train(*inputs, tmp_path / "whole", epochs=2).hash


def test_a_damaged_checkpoint_is_an_error_that_names_it(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(gnn, "contrastive_loss", Interrupting(gnn.contrastive_loss, 8))
        with pytest.raises(KeyboardInterrupt):
            train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model")
    checkpoint = tmp_path / ".model.partial" / "scratch" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"checkpoint.safetensors: .*cannot be resumed.*Delete it"):
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model")


# Seeds, choice on dev, and what is refused.


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    first, second, other = (
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / name, epochs=2, seed=seed, encoder=DROPPING)
        for name, seed in (("first", 7), ("second", 7), ("other", 8))
    )
    assert first.meta["files"] == second.meta["files"]
    assert first.meta["files"]["model.safetensors"] != other.meta["files"]["model.safetensors"]
    assert (first.meta["seed"], other.meta["seed"]) == (7, 8)


def scripted(monkeypatch, values: list[dict[float, float]]) -> list[dict[str, torch.Tensor]]:
    """Let dev measure these values, epoch by epoch; returns the weights as they were measured."""
    measured: list[dict[str, torch.Tensor]] = []

    def measure(self, model, store, scales, visible=None, among=None):
        measured.append({name: value.clone() for name, value in model.state_dict().items()})
        return {scale: np.full(len(self), values[len(measured) - 1].get(scale, 0.0)) for scale in scales}

    monkeypatch.setattr(DevSet, "measure", measure)
    return measured


def test_the_best_epoch_on_dev_is_kept_with_its_context_scale(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    values = [{0.0: 0.1, 0.5: 0.2}, {0.0: 0.1, 0.5: 0.7}, {0.0: 0.1, 0.5: 0.7}, {0.0: 0.1, 0.5: 0.3}]
    measured = scripted(monkeypatch, values)
    model = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", dev_window=1)
    assert len(measured) == 4
    assert model.meta["dev"]["chosen"] == {"epoch": 2, "context_scale": 0.5, "RR@10": pytest.approx(0.7)}
    assert model.meta["dev"]["dual_encoder"] == {"RR@10": pytest.approx(0.1)}
    kept = weights_of(model)
    assert kept.pop("context_scale") == 0.5
    del measured[1]["context_scale"]
    assert all(torch.equal(kept[name], value) for name, value in measured[1].items())
    assert kept.keys() == measured[1].keys()
    assert not all(torch.equal(kept[name], value) for name, value in measured[2].items() if name in kept)


def test_a_graph_that_does_not_help_leaves_the_dual_encoder_to_the_bit(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    scripted(monkeypatch, [{0.0: 0.5, 0.5: 0.5, 1.0: 0.4}] * 4)
    module = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model").load()
    assert module.context_scale == 0
    batch = GraphTensors(tiny_graph).batch(np.arange(tiny_graph.num_passages))
    assert torch.equal(module(batch), batch.passages)


def test_training_stops_early_when_dev_has_not_improved_for_its_patience(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    values = [{0.0: 0.1, 1.0: value} for value in (0.2, 0.5, 0.3, 0.5, 0.9, 0.9)]
    measured = scripted(monkeypatch, values)
    model = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", epochs=6, patience=2, dev_window=1)
    assert len(measured) == 4
    assert model.meta["dev"]["chosen"]["epoch"] == 2
    assert len([record for record in log_of(model) if "dev" in record]) == 4


def test_patience_begins_after_the_warm_up(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch):
    measured = scripted(monkeypatch, [{0.0: 0.1, 1.0: value} for value in (0.2, 0.1, 0.1, 0.5, 0.1, 0.1)])
    options = {"epochs": 6, "patience": 2, "warmup": 0.5, "dev_window": 1}
    model = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", **options)
    assert len(measured) == 6
    assert model.meta["dev"]["chosen"]["epoch"] == 4


def test_nothing_gained_is_told_once_and_as_it_is(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, said):
    scripted(monkeypatch, [{0.0: 0.5, 0.5: 0.5, 1.0: 0.4}] * 4)
    dataset = Dataset.open(tiny_dataset)
    model = train_gnn(tiny_graph, dataset, tiny_features, TrainSettings(**SHORT), tmp_path / "model")
    assert not any("kept epoch" in line for line in said)
    assert sum("the graph did not help on dev" in line for line in said) == 1
    assert "The graph did not help on dev" in (model.path / "README.md").read_text()


@pytest.mark.parametrize("scales", [(), (0.0,), (-1.0, 1.0)])
def test_context_scales_that_leave_nothing_to_choose_are_refused(scales):
    with pytest.raises(GnnRetrievalError, match="give at least one scale above 0"):
        TrainSettings.parse({"context_scales": scales})


def test_a_rehearsal_times_three_steps_though_an_epoch_has_one(tiny_graph, tiny_dataset, tiny_features):
    settings = TrainSettings(epochs=4, batch_size=200)
    found = rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings)
    assert (found["steps_per_epoch"], found["steps"], found["timed_steps"]) == (1, 4, 3)


def test_training_without_weight_averaging_measures_the_weights_themselves(tiny_graph, tmp_path):
    settings = TrainSettings(**SHORT, weight_averaging=0.0)
    training = GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path)
    training.epoch(0)
    for average, value in zip(training.average.parameters(), training.model.parameters(), strict=True):
        torch.testing.assert_close(average, value)


def test_training_that_diverges_ends_with_a_sentence(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    with pytest.raises(GnnRetrievalError, match=r"training has diverged: .* Give a lower learning_rate\."):
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "out", learning_rate=1e38)


def test_training_lowers_the_loss(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    model = train(
        tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", epochs=12, mask_ratio=0.3, mask_unit="query"
    )
    losses = [record["loss"] for record in log_of(model) if "loss" in record]
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


def test_the_learning_rate_warms_up_and_falls_to_zero(tiny_graph, tmp_path):
    settings = TrainSettings(epochs=5, mask_ratio=0.2, batch_size=3, warmup=0.25, learning_rate=0.1)
    training = GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path)
    assert training.steps_per_epoch == 4
    rates = []
    for step in range(21):
        training._set_learning_rate(step)
        rates.append(training.optimizer.param_groups[0]["lr"])
    assert rates[:6] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])
    assert rates[5:] == pytest.approx([0.1 * left / 15 for left in range(15, -1, -1)])


def test_a_passage_with_all_questions_does_not_use_up_the_learning_rate_of_later_epochs(tiny_graph, tmp_path):
    n = tiny_graph.num_queries
    of_one = np.stack([np.arange(n), np.zeros(n, dtype=np.int64)], axis=1)
    learned = LearnedFrom.of(tiny_graph)._replace(labels=of_one)
    settings = TrainSettings(epochs=5, mask_ratio=0.2, mask_unit="passage", batch_size=6, learning_rate=0.1)
    training = GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path, learned=learned)
    training.run()
    rates = [step["learning_rate"] for record in training.progress.history for step in record["steps"]]
    epochs = [step["epoch"] for record in training.progress.history for step in record["steps"]]
    assert len(rates) == 50
    assert training.steps_per_epoch == 2
    assert min(rates) > 0
    assert rates[0] == max(rates) == 0.1
    assert rates == sorted(rates, reverse=True)
    assert epochs == pytest.approx(np.arange(1, 51) / 10)


def test_all_queries_masked_still_trains(tiny_graph, tmp_path, monkeypatch):
    monkeypatch.setattr(gnn, "mask_queries", lambda n, *args: np.ones(n, dtype=bool))
    for candidates in ("corpus", "batch"):
        settings = TrainSettings(**{**SHORT, "batch_size": 60}, candidates=candidates)
        training = GNNTraining(tiny_graph, a_dev_set(tiny_graph), settings, tmp_path)
        assert np.isfinite([step["loss"] for step in training.epoch(0)["steps"]]).all()


def test_features_that_the_store_was_not_made_from_are_refused(
    tiny_graph, tiny_dataset, tiny_checkpoint, tiny_features, tmp_path
):
    settings = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32", max_tokens=5)
    others = encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "others")
    with pytest.raises(ArtifactError, match="built from other features than"):
        train(tiny_graph, tiny_dataset, others, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["others"]


def test_a_dataset_without_a_relevant_passage_in_dev_is_refused(tiny_graph, tiny_features, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    dataset._judgements["dev"] = {query: dict.fromkeys(judged, 0) for query, judged in dataset.split("dev").items()}
    with pytest.raises(GnnRetrievalError, match="no query of split 'dev' has a relevant passage"):
        train_gnn(tiny_graph, dataset, tiny_features, TrainSettings(**SHORT), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_heads_that_do_not_divide_the_width_are_an_error_in_a_sentence(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    with pytest.raises(GnnRetrievalError, match="5 heads"):
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", encoder=GNNEncoderSettings(heads=5))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_no_generator_takes_is_an_error_of_the_settings(seed):
    with pytest.raises(InputError, match="seed"):
        TrainSettings.parse({"seed": seed})


def test_made_again_from_the_same_inputs_it_is_reused(tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch):
    first = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", epochs=1)
    monkeypatch.setattr("gnnretrieval.training.gnn.train.GNNTraining", None)
    assert train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", epochs=1).meta == first.meta
    with pytest.raises(ArtifactError, match="seed was 0 and is now 1"):
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "model", epochs=1, seed=1)


def test_queries_without_a_label_are_in_the_graph_and_never_trained_on(tiny_graph, tmp_path, monkeypatch):
    store = in_memory(tiny_graph)
    store.__dict__["labels"] = store.labels[store.labels[:, 0] % 2 == 0]
    seen = []
    monkeypatch.setattr(gnn, "step_of", lambda *args, step_of=gnn.step_of: seen.append(args[0]) or step_of(*args))
    graphs = []
    batch = GraphTensors.batch
    monkeypatch.setattr(GraphTensors, "batch", lambda self, *args: graphs.append(args[1]) or batch(self, *args))
    settings = TrainSettings(**{**SHORT, "epochs": 3}, candidates="corpus")
    GNNTraining(store, a_dev_set(store), settings, tmp_path).run()
    trained = np.unique(np.concatenate(seen))
    assert len(trained) > 5
    assert not (trained % 2).any()
    assert all(visible[1::2].all() for visible in graphs if visible is not None)
