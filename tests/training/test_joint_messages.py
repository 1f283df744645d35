"""mode = joint with layer = linear: the query encoder learns, a head with it, the label mean follows."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from killed_runs import killed_before
from safetensors.torch import load_file

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph
from gnnretrieval.nn.label_messages import Heads, Messages, mean_nearness, message_vectors
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.inspection import inspection, inspection_lines, open_trained
from gnnretrieval.training.gnn import dry_run, joint_messages, messages
from gnnretrieval.training.gnn.dry_run import dry_run_lines, rehearse
from gnnretrieval.training.gnn.embeddings import embed_passages
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.joint_messages import JointMessages, QueryEncoderTraining
from gnnretrieval.training.gnn.judged import Judged, questions_beside
from gnnretrieval.training.gnn.ladder import MEANS, climb, message_graph, reciprocal_ranks
from gnnretrieval.training.gnn.messages import TrainedMessages

GIVEN = {
    "layer": "linear",
    "mode": "joint",
    "epochs": 3,
    "batch_size": 20,
    "learning_rate": 1e-3,
    "evidence": 1.0,
    "precision": "float32",
}


def train(graph, dataset, features, out, **settings):
    return train_gnn(graph, Dataset.open(dataset), features, TrainSettings.parse({**GIVEN, **settings}), out)


@pytest.fixture(scope="module")
def no_ladder():
    """The ladder keeps nothing, so that joint training has something to gain on so few questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "climb", keep_nothing)
        yield


def keep_nothing(measure, **given):
    return climb(lambda messages: measure(Messages()), **{**given, "by_rank": None})


@pytest.fixture(scope="module")
def model(no_ladder, tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    return train(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory.mktemp("joint") / "model")


def log_of(model):
    return [json.loads(line) for line in (model.path / "log.jsonl").read_text().splitlines()]


def test_the_query_encoder_learns_and_passages_stay(model, tiny_checkpoint):
    assert model.has_encoder
    assert model.is_linear
    before = load_file(next(tiny_checkpoint.glob("**/model.safetensors")))
    passages, queries = (
        load_file(next((model.path / side).glob("**/model.safetensors"))) for side in ("passage", "query")
    )
    assert all(torch.equal(before[name], value) for name, value in passages.items() if name in before)
    assert any(not torch.equal(before[name], value) for name, value in queries.items() if name in before)


def test_the_weight_is_the_best_over_epochs_and_the_epoch_the_best_over_weights(model):
    measured = [record for record in log_of(model) if "dev" in record]
    assert [record["epoch"] for record in measured] == [0, 1, 2, 3]
    of_epoch = {record["epoch"]: record["dev"]["RR@10"] for record in measured}
    assert model.meta["dev"]["joint"]["epoch"] == max(of_epoch, key=of_epoch.__getitem__)
    for record in measured:
        by_weight = [record["dev"][f"RR@10, label mean {mean:g}"] for mean in MEANS]
        assert record["dev"]["RR@10"] == pytest.approx(np.mean(by_weight))
    of_weight = {
        mean: np.mean([record["dev"][f"RR@10, label mean {mean:g}"] for record in measured[1:]]) for mean in MEANS
    }
    assert model.meta["messages"]["mean"] == max(of_weight, key=of_weight.__getitem__)
    assert model.meta["dev"]["joint"]["tried"] == 4 * len(MEANS) + model.meta["dev"]["best"]["tried"]


def test_the_card_says_what_training_the_query_encoder_gained_and_how_it_was_trained(model):
    card, dev = (model.path / "README.md").read_text(encoding="utf-8"), model.meta["dev"]
    assert dev["best"]["gain"] == 0 < dev["joint"]["gain"]
    assert f"| gain of training the query encoder, over that | {100 * dev['joint']['gain']:+.1f} ±" in card
    assert "log.jsonl" not in card  # it has no line of the ladder
    assert "| epochs | 3 |" in card
    assert "| learning_rate | 0.001 |" in card
    assert "| dual_encoder.token_budget | 4096 |" in card
    assert "encoder_learning_rate" not in card


@pytest.mark.parametrize(
    ("gain", "rank_gain", "kept"),
    [(0.5, 0, True), (0, 0.5, True), (0, 0, False), (-0.5, 0.5, False), (0.5, -0.5, False)],
)
def test_joint_training_is_kept_by_a_gain_in_either_if_the_other_does_not_lose(gain, rank_gain, kept):
    figures = {"epoch": 1, "dev": 0.9, "gain": gain, "error": 0.1, "rank_gain": rank_gain, "rank_error": 0.1}
    figures |= {"harms": False, "p": 0.01, "tried": 9, "beside": 0}
    joint = JointMessages(SimpleNamespace(is_significant=True), TrainedMessages(None, Messages(20)), **figures)
    assert joint.better is kept


@pytest.mark.parametrize(("chosen", "words"), [(Messages(20), ""), (Messages(20, mean=0.3), ", label mean 0.3")])
def test_what_is_kept_names_the_messages_beside_the_query_encoder(chosen, words):
    figures = {"epoch": 1, "dev": 0.9, "gain": 0.5, "error": 0.1, "rank_gain": 0.5, "rank_error": 0.1}
    figures |= {"harms": False, "p": 0.01, "tried": 9, "beside": 0}
    ladder = SimpleNamespace(is_significant=True)
    kept = JointMessages(ladder=ladder, trained=TrainedMessages(None, chosen), **figures).kept
    assert kept == f"query encoder and head trained jointly{words}"


def test_an_inspection_shows_the_epochs_and_what_was_gained_over_the_frozen_encoder(model):
    report = inspection(open_trained(model.path))
    lines, joint = inspection_lines(report), model.meta["dev"]["joint"]
    assert "which learns with it" in lines[0]
    assert [record["epoch"] for record in report["history"]] == [0, 1, 2, 3]
    rows = [line.split() for line in lines if line[0] in "* " and line[1] == " "]
    assert [row[-8] for row in rows] == ["0", "1", "2", "3"]
    assert [row[1] for row in rows if row[0] == "*"] == [str(joint["epoch"])]
    (gain,) = [line for line in lines if line.startswith("gain of the query encoder")]
    assert f"{100 * joint['gain']:+.1f} ± {100 * joint['error']:.1f}" in gain
    assert gain.endswith("kept")
    assert lines[-1] == f"kept: {model.meta['dev']['kept']}"


def test_what_is_embedded_is_what_was_measured_on_dev(model, tiny_graph, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    its = EncoderSettings(checkpoint=str(model.path), precision="float32")
    features = encode_dataset(dataset, its, tmp_path / "features")
    np.testing.assert_array_equal(features.passages, tiny_graph.passage_features)
    embeddings = embed_passages(model, tiny_graph, tmp_path / "embeddings", features=features)
    judged = dataset.split("dev")
    row = {id_: number for number, id_ in enumerate(dataset.passage_ids)}
    relevant = [[row[passage] for passage, grade in passages.items() if grade > 0] for passages in judged.values()]
    asked = torch.from_numpy(np.asarray(features.queries[features.rows_of(list(judged))], dtype=np.float32))
    values = reciprocal_ranks(torch.from_numpy(np.asarray(embeddings.passages, dtype=np.float32)), asked, relevant)
    assert values.mean() == pytest.approx(model.meta["dev"]["chosen"]["RR@10"], abs=0.02)
    view, head = message_graph(model.view(tiny_graph, features)), load_file(model.path / "model.safetensors")["head"]
    assert not torch.allclose(head, torch.eye(len(head)), atol=1e-2)
    expected = message_vectors(view, Heads.shared(head), Messages(**model.meta["messages"]))
    np.testing.assert_allclose(np.asarray(embeddings.passages, np.float32), expected, atol=1e-3)


def test_a_resumed_run_makes_the_same_model(model, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    with killed_before(4):
        train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "resumed")
    resumed = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "resumed")
    assert resumed.meta["files"] == model.meta["files"]
    assert resumed.meta["dev"] == model.meta["dev"]


def test_a_gain_that_may_be_chance_leaves_the_dual_encoder(
    no_ladder, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    kept = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "kept", evidence=1e-9, epochs=1)
    assert not kept.has_encoder
    assert Messages(**kept.meta["messages"]) == Messages()
    assert not kept.meta["dev"]["believed"]
    assert not (kept.path / "query").exists()
    embeddings = embed_passages(kept, tiny_graph, tmp_path / "embeddings")
    expected = tiny_graph.similarity.prepare_array(np.asarray(tiny_graph.passage_features))
    np.testing.assert_allclose(np.asarray(embeddings.passages, np.float32), expected, atol=1e-3)


def test_what_a_frozen_encoder_reaches_is_kept_without_a_gain_over_it(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "climb", climb)
        joint = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "joint", learning_rate=1e-9, epochs=1)
        frozen = train_gnn(
            tiny_graph,
            Dataset.open(tiny_dataset),
            tiny_features,
            TrainSettings.parse({"evidence": 1.0}),
            tmp_path / "f",
        )
    assert not joint.meta["dev"]["joint"]["kept"]
    assert not joint.has_encoder
    assert joint.meta["messages"] == frozen.meta["messages"]
    assert joint.meta["dev"]["kept"] == frozen.meta["dev"]["kept"] != "the dual-encoder"
    assert joint.meta["files"]["model.safetensors"] == frozen.meta["files"]["model.safetensors"]


def test_the_level_of_local_scaling_is_that_of_the_trained_encoder(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    def scaled(measure, **given):
        return climb(
            lambda messages: measure(Messages()) + 0.1 * (messages.scaling == 0.3), **{**given, "by_rank": None}
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "climb", scaled)
        joint = train(tiny_graph, tiny_dataset, tiny_features, tmp_path / "joint")
    its = EncoderSettings(checkpoint=str(joint.path), precision="float32")
    features = encode_dataset(Dataset.open(tiny_dataset), its, tmp_path / "features")
    kept = joint.load_messages()
    assert kept.messages.scaling == 0.3
    level = mean_nearness(message_graph(joint.view(tiny_graph, features)), kept.heads, kept.messages)
    assert kept.messages.level == pytest.approx(level, abs=0.01)
    assert level != pytest.approx(mean_nearness(message_graph(tiny_graph), None, Messages()), abs=0.05)


def test_questions_without_a_label_are_encoded_again_where_messages_depend_on_them(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    """What is measured on dev is then what is embedded, where all questions are encoded again."""
    store = open_graph(tiny_graph.path)
    store.__dict__["labels"] = store.labels[store.labels[:, 0] < 20]  # the others were added without a label
    dataset, features = Dataset.open(tiny_dataset), tiny_features
    held_out, taught = held_out_queries(store, dataset, features, 0), np.ones(60, dtype=bool)
    texts = store.texts().texts_of_queries([*range(60)])
    for chosen in (Messages(scaling=0.3), Messages(rounds=1, step_size=0.1), Messages()):
        made = QueryEncoderTraining.of(store, held_out, TrainSettings.parse(GIVEN), tmp_path / "made", taught, chosen)
        tower = made.task.towers["query"]
        made.loop.step(0)
        tower.module.eval()
        expected = torch.from_numpy(encoded(tower, tower.items("query", texts), 4096).numpy())
        queries = made.dev.graph().queries
        wanted = slice(None) if chosen.rounds or chosen.scaling else torch.from_numpy(np.unique(store.labels[:, 0]))
        torch.testing.assert_close(queries[wanted], expected[wanted], atol=2e-3, rtol=0)


def test_a_dry_run_times_its_steps(tiny_graph, tiny_dataset, tiny_features):
    settings = TrainSettings.parse(GIVEN)
    found = rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings)
    assert (found["queries"], found["steps_per_epoch"], found["steps"], found["timed_steps"]) == (60, 3, 9, 3)
    lines = dry_run_lines(found, settings)
    assert "3 epochs of 3 steps: 9 steps of 20 queries, each against up to 40 passages" in lines[1]
    assert lines[-1] == "a dry run: nothing was made"


def test_a_dry_run_counts_the_shared_heads_alone(tiny_graph, tiny_dataset, tiny_features, monkeypatch):
    """Joint training climbs the ladder without separate heads."""
    given, counted = (tiny_graph, Dataset.open(tiny_dataset), tiny_features), []
    count = dry_run.steps_of_heads
    monkeypatch.setattr(dry_run, "steps_of_heads", lambda *args: counted.append(count(*args)) or counted[-1])
    rehearse(*given, TrainSettings.parse(GIVEN))
    rehearse(*given, TrainSettings())
    assert counted[1] == 2 * counted[0]


@pytest.mark.parametrize(("scale", "expected"), [(None, 20.0), (3.0, 3.0)])
def test_short_vectors_of_a_dot_product_learn_with_the_factor_of_the_ladder(
    scale, expected, tiny_dataset, tiny_settings, tmp_path
):
    """The tiny checkpoint's vectors have length 1: with a factor of 1 all scores in the softmax are nearly equal."""
    dataset = Dataset.open(tiny_dataset)
    encoder = tiny_settings.model_copy(update={"similarity": "dot", "scale": scale})
    features = encode_dataset(dataset, encoder, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    held_out, settings = held_out_queries(store, dataset, features, 0), TrainSettings.parse(GIVEN)
    made = QueryEncoderTraining.of(store, held_out, settings, tmp_path / "made", np.ones(60, dtype=bool))
    assert made.task.similarity.scale == pytest.approx(expected, rel=1e-3)
    assert made.task.similarity.scale == pytest.approx(message_graph(store).scale, rel=1e-3)
    assert made.start.similarity.scale == (scale or 1.0)  # what the saved encoder records


def test_its_defaults_and_what_it_refuses():
    settings = TrainSettings.parse({"layer": "linear", "mode": "joint"})
    assert (settings.epochs, settings.batch_size, settings.learning_rate) == (8, 64, 5e-5)
    assert TrainSettings.parse({"mode": "joint"}).layer == "gat"
    slow = {"dual_encoder": {"encoder_learning_rate": 1e-3}}
    heads = {"encoder": {"heads": 3}}
    for name, wrong in (("mask_ratio", {"mask_ratio": 0.5}), ("encoder_learning_rate", slow), ("heads", heads)):
        with pytest.raises(InputError, match=f": {name}: not for layer = linear. Leave this out, or"):
            TrainSettings.parse({"layer": "linear", "mode": "joint", **wrong})
    with pytest.raises(InputError, match="need mode = joint"):
        TrainSettings.parse({"layer": "linear", "dual_encoder": {"encoder_dropout": 0.1}})


def test_training_questions_with_copies_are_judged_each_by_its_own_passages(tiny_dataset, tiny_settings, tmp_path):
    """Before the first epoch the encoder in training is the frozen one, and ranks them as that does."""
    place = tmp_path / "data"
    shutil.copytree(tiny_dataset, place)
    for file, mark in ((place / "queries.jsonl", '"_id": "train-'), (place / "qrels" / "train.tsv", "train-")):
        lines = file.read_text().splitlines(keepends=True)
        twice = [[line, line.replace("train-", "copy-of-train-", 1)] if mark in line else [line] for line in lines]
        file.write_text("".join(line for both in twice for line in both))
    dataset = Dataset.open(place)
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    held_out, taught = held_out_queries(store, dataset, features, 0), np.ones(store.num_queries, dtype=bool)
    graph = message_graph(store)
    dev = Judged.of(graph, {}, held_out.queries, held_out.relevant)
    beside = questions_beside(graph, dev, 0, torch.from_numpy(taught))
    settings = TrainSettings.parse(GIVEN)
    made = QueryEncoderTraining.of(store, held_out, settings, tmp_path / "made", taught, beside=beside)
    values = made.dev.values()[0.0].reciprocal[len(held_out.relevant) :]
    assert len(values) > 2
    np.testing.assert_array_equal(values, beside.judged.measure(Messages()))


@pytest.mark.parametrize("mode", ["frozen", "joint"])
def test_with_one_dev_question_every_record_is_json(mode, tiny_dataset, tiny_settings, tmp_path, monkeypatch, said):
    """One question has no standard error, and JSON no infinity."""
    place = tmp_path / "data"
    shutil.copytree(tiny_dataset, place)
    judged = (place / "qrels" / "dev.tsv").read_text().splitlines()
    (place / "qrels" / "dev.tsv").write_text("\n".join(judged[:2]) + "\n")
    dataset = Dataset.open(place)
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    monkeypatch.setattr(joint_messages, "questions_beside", lambda *given: None)
    given = {**GIVEN, "epochs": 1} if mode == "joint" else {"layer": "linear"}
    model = train_gnn(store, dataset, features, TrainSettings.parse(given), tmp_path / "model")
    for text in [(model.path / "meta.json").read_text(), *(model.path / "log.jsonl").read_text().splitlines()]:
        json.loads(text, parse_constant=pytest.fail)
    assert "inf" not in " ".join([*said, *inspection_lines(inspection(open_trained(model.path)))])
