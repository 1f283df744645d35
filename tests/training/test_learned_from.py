"""What a dual-encoder learned from: written beside its weights, carried by its features, spared by what comes after."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.learned_from import read_learned_from, write_learned_from
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.encoder.pair_data import in_share
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder
from gnnretrieval.training.gnn import examples as gnn_examples
from gnnretrieval.training.gnn.candidates import Step
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.graph_tensors import edge_moments
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.loop import GNNTraining
from gnnretrieval.training.gnn.train import TrainingPlan

SHORT = {"epochs": 2, "batch_size": 12, "context_scales": (1.0,)}
HALF = DualEncoderTrainSettings(
    shared=True, epochs=1, batch_size=16, hard_negatives=0, query_share=0.5, precision="float32"
)


@pytest.fixture(scope="module")
def dataset(tiny_dataset: Path) -> Dataset:
    return Dataset.open(tiny_dataset)


@pytest.fixture(scope="module")
def half(dataset: Dataset, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32")
    return train_dual_encoder(dataset, [], encoder, HALF, tmp_path_factory.mktemp("half") / "encoder").path


@pytest.fixture(scope="module")
def features(dataset: Dataset, half: Path) -> Features:
    settings = EncoderSettings(checkpoint=str(half), precision="float32")
    return encode_dataset(dataset, settings, half.with_name("features"))


def test_ids_are_read_as_they_were_written(tmp_path: Path) -> None:
    ids = {"q1", "a b", "a\u2028b", "c\x0cd", "e\x85f"}
    write_learned_from(tmp_path, ids)
    assert read_learned_from(tmp_path) == ids


def test_a_share_is_always_the_same_queries_and_grows_with_it() -> None:
    ids = [f"query {number}" for number in range(2000)]
    shares = [{id_ for id_ in ids if in_share(id_, share)} for share in (0.25, 0.5, 1.0)]
    assert shares[0] < shares[1] < shares[2] == set(ids)
    assert 420 < len(shares[0]) < 580
    assert 900 < len(shares[1]) < 1100


def test_an_encoder_learns_from_its_share_and_says_which(dataset: Dataset, half: Path) -> None:
    known = read_learned_from(half)
    assert known == {query for query in dataset.split("train") if in_share(query, 0.5)}
    assert 0 < len(known) < 60
    assert json.loads((half / "meta.json").read_text())["examples"]["queries"] == len(known)


def test_what_it_started_from_counts_too(dataset: Dataset, half: Path, tmp_path: Path) -> None:
    encoder = EncoderSettings(checkpoint=str(half), precision="float32")
    settings = HALF.model_copy(update={"query_share": 0.1})
    more = train_dual_encoder(dataset, [], encoder, settings, tmp_path / "more")
    assert more.meta["examples"]["queries"] < len(read_learned_from(half))
    assert read_learned_from(more.path) == read_learned_from(half)


def test_features_carry_it_and_those_of_a_checkpoint_say_nothing(
    features: Features, half: Path, tiny_features: Features
) -> None:
    assert features.learned_from() == read_learned_from(half)
    assert tiny_features.learned_from() == frozenset()
    assert "learned-from.txt" in features.meta["files"]


@pytest.mark.parametrize("candidates", ["corpus", "batch"])
def test_only_new_queries_are_trained_on_and_the_others_are_in_the_graph(
    dataset: Dataset,
    features: Features,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    candidates: str,
    said: list[str],
) -> None:
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    steps: list[Step] = []
    loss = GNNTraining._loss
    monkeypatch.setattr(GNNTraining, "_loss", lambda self, step, *rest: steps.append(step) or loss(self, step, *rest))
    settings = TrainSettings(**SHORT, learn_from="unseen", mask_ratio=0.9, mask_unit="mixed", candidates=candidates)
    model = train_gnn(store, dataset, features, settings, tmp_path / "model")
    with store.texts() as texts:
        ids = texts.query_ids()
    known = {row for row, id_ in enumerate(ids) if id_ in features.learned_from()}
    trained = {int(row) for step in steps for row in step.queries}
    assert trained
    assert not trained & known
    assert trained == set(range(60)) - known
    assert model.meta["queries"] == {"trained_on": 60 - len(known), "labelled": 60}
    card = (model.path / "README.md").read_text()
    assert f"trained on {60 - len(known)} questions that the dual-encoder did not learn from" in card
    assert any(f"the other {len(known)} are only in the graph" in line for line in said)


def test_a_passages_known_queries_leave_the_graph_with_its_new_ones(
    dataset: Dataset, features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    settings = TrainSettings(**SHORT, learn_from="unseen", mask_unit="passage")
    training = TrainingPlan.of(store, dataset, features, settings).training(tmp_path / "run")
    graphs = []
    subgraph = training._subgraph
    monkeypatch.setattr(training, "_subgraph", lambda *args: graphs.append(args[1]) or subgraph(*args))
    training.epoch(0)
    left = np.flatnonzero(~graphs[0])
    passages = set(store.labels[np.isin(store.labels[:, 0], left), 1].tolist())
    assert passages
    assert set(store.labels[np.isin(store.labels[:, 1], list(passages)), 0].tolist()) == set(left.tolist())
    assert not training.learned.taught[left].all()


def test_which_queries_follows_from_the_setting_and_how_many_are_left(
    dataset: Dataset, features: Features, tiny_features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    new = gnn_examples.unseen_queries(store, features, "unseen")
    assert 0 < new.sum() < 60
    assert gnn_examples.unseen_queries(store, features, "all").all()
    assert gnn_examples.unseen_queries(store, features, "auto").all()  # too few are left
    monkeypatch.setattr(gnn_examples, "ENOUGH", int(new.sum()))
    np.testing.assert_array_equal(gnn_examples.unseen_queries(store, features, "auto"), new)
    assert gnn_examples.unseen_queries(store, tiny_features, "unseen").all()  # nothing is known of its encoder
    monkeypatch.setattr(Features, "learned_from", lambda self: frozenset(dataset.split("train")))
    with pytest.raises(GnnRetrievalError, match="learned from every labelled query"):
        gnn_examples.unseen_queries(store, features, "unseen")
    assert gnn_examples.unseen_queries(store, features, "auto").all()


def test_without_a_dev_split_it_is_chosen_by_new_queries(
    tiny_dataset: Path, half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    shutil.copytree(tiny_dataset, tmp_path / "data")
    (tmp_path / "data" / "qrels" / "dev.tsv").unlink()
    dataset = Dataset.open(tmp_path / "data")
    features = encode_dataset(dataset, EncoderSettings(checkpoint=str(half)), tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    new = gnn_examples.unseen_queries(store, features, "unseen")
    found, plain = (held_out_queries(store, dataset, features, 3, which) for which in (new, None))
    assert found.hidden is not None
    assert plain.hidden is not None
    np.testing.assert_array_equal(found.hidden, plain.hidden)  # what is held out of training is the same
    assert 0 < len(found.queries) == len(found.parts) == (found.hidden & new).sum() < len(plain.queries)
    monkeypatch.setattr(gnn_examples, "ENOUGH", int(new.sum()))
    plan = TrainingPlan.of(store, dataset, features, TrainSettings(**SHORT))
    assert plan.learned.taught.all()  # all are trained on
    assert 0 < len(plan.held_out.queries) < plan.held_out.hidden.sum()


# Stacking: the GNN learns over an encoder that left questions to it, and is used over one that had them all.


@pytest.fixture
def two_graphs(dataset: Dataset, features: Features, tiny_features: Features, tmp_path: Path) -> tuple[Graph, Graph]:
    return tuple(  # type: ignore[return-value]
        build_graph(dataset, one, GraphSettings(k=5), tmp_path / name)
        for name, one in (("half", features), ("whole", tiny_features))
    )


def test_without_epochs_only_the_context_scale_is_chosen(
    dataset: Dataset,
    features: Features,
    tiny_features: Features,
    two_graphs: tuple[Graph, Graph],
    tmp_path: Path,
) -> None:
    half, whole = two_graphs
    settings = TrainSettings(**{**SHORT, "context_scales": (0.5, 1.0)}, learning_rate=0.01, evidence=1.0)
    first = train_gnn(half, dataset, features, settings, tmp_path / "first")
    again = settings.model_copy(update={"epochs": 0})
    second = train_gnn(whole, dataset, tiny_features, again, tmp_path / "second", start=first)
    one, other = (load_file(model.path / "model.safetensors") for model in (first, second))
    for name in one.keys() - {"context_scale", "edge_mean", "edge_deviation"}:
        assert torch.equal(one[name], other[name])
    moments = edge_moments(whole)
    np.testing.assert_allclose(other["edge_mean"].numpy(), moments[0], rtol=1e-6)
    log = [json.loads(line) for line in (second.path / "log.jsonl").read_text().splitlines()]
    (record,) = log
    assert record["epoch"] == 0
    assert float(other["context_scale"]) in (0.0, 0.5, 1.0)
    assert second.meta["dev"]["chosen"]["RR@10"] == record["dev"]["RR@10"]
    embed_passages(second, whole, tmp_path / "embeddings")


def test_without_epochs_there_must_be_something_to_start_from(
    dataset: Dataset, features: Features, two_graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    settings = TrainSettings(**SHORT).model_copy(update={"epochs": 0})
    with pytest.raises(GnnRetrievalError, match="epochs = 0 only chooses the context scale"):
        train_gnn(two_graphs[0], dataset, features, settings, tmp_path / "model")


def test_damaged_weights_to_start_from_are_named(
    dataset: Dataset, features: Features, two_graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    settings = TrainSettings(**SHORT)
    first = train_gnn(two_graphs[0], dataset, features, settings, tmp_path / "first")
    weights = first.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be loaded"):
        train_gnn(two_graphs[0], dataset, features, settings, tmp_path / "second", start=first)


def test_only_new_questions_join_few_dev_questions(
    dataset: Dataset, features: Features, two_graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    plan = TrainingPlan.of(two_graphs[0], dataset, features, TrainSettings())
    new = gnn_examples.new_queries(two_graphs[0], features)
    assert plan.held_out.is_split
    np.testing.assert_array_equal(plan.held_out.may_join, new)
    assert 0 < new.sum() < len(new)
    joined = train_gnn(two_graphs[0], dataset, features, TrainSettings(), tmp_path / "model").meta["dev"]
    assert 0 < joined["cross_validated"] <= new.sum()


def test_what_goes_on_is_measured_first_and_never_kept_worse(
    dataset: Dataset, features: Features, two_graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    settings = TrainSettings(**SHORT, learning_rate=0.01, evidence=1.0)
    first = train_gnn(two_graphs[0], dataset, features, settings, tmp_path / "first")
    second = train_gnn(two_graphs[0], dataset, features, settings, tmp_path / "second", start=first)
    log = [json.loads(line) for line in (second.path / "log.jsonl").read_text().splitlines()]
    assert log[0]["epoch"] == 0
    assert second.meta["dev"]["best"]["gain"] >= first.meta["dev"]["best"]["gain"]


def test_what_was_believed_where_it_was_trained_needs_less_evidence_over_another_encoder(
    dataset: Dataset,
    features: Features,
    tiny_features: Features,
    two_graphs: tuple[Graph, Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
) -> None:
    half, whole = two_graphs
    weak = np.array([0.5, -0.4, 0.3, -0.2, 0.4, -0.1, 0.2, 0.1, 0.1, 0.0])  # p = 0.15
    gains = weak

    def measure(self: DevSet, model: object, store: object, scales: object, *args: object) -> dict[float, np.ndarray]:
        return {0.0: np.full(10, 0.3), 1.0: 0.3 + gains}

    monkeypatch.setattr(DevSet, "measure", measure)
    for number, (of_first, evidence, transfer, scale) in enumerate(
        [
            (weak + 0.2, 0.05, 0.2, 1.0),
            (weak + 0.2, 0.05, 0.1, 0.0),  # not enough for transfer_evidence
            (weak, 0.05, 0.2, 0.0),  # not believed where it was trained
            (weak, 1.0, 0.2, 0.0),  # nor believed but by evidence = 1
        ]
    ):
        gains = of_first
        settings = TrainSettings(**SHORT, evidence=evidence)
        first = train_gnn(half, dataset, features, settings, tmp_path / f"first-{number}")
        over = {"epochs": 0, "evidence": 0.05, "transfer_evidence": transfer}
        again, gains = settings.model_copy(update=over), weak
        for place, (store, of) in {"over another": (whole, tiny_features), "over its own": (half, features)}.items():
            said.clear()
            out = tmp_path / f"{place}-{number}"
            second = train_gnn(store, dataset, of, again, out, start=first)
            wanted = scale if place == "over another" else 0.0
            assert second.meta["dev"]["chosen"]["context_scale"] == wanted
            assert any("may be chance" in line for line in said) == (wanted == 0.0)
            because = "is enough (transfer_evidence = 0.2), because its gain was significant"
            assert any(because in line for line in said) == (wanted == 1.0)
            assert (because in (out / "README.md").read_text()) == (wanted == 1.0)
