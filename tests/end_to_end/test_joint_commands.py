"""Joint training from the command line: train, encode with its own encoder, embed, index, search; and by a recipe."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gnnretrieval.encoders.features import open_features
from gnnretrieval.training.gnn.embeddings import open_embeddings
from gnnretrieval.training.gnn.model import open_model
from tests.forks import ROOT

JOINT = ("--mode", "joint", "--precision", "float32", "--epochs", "2", "--batch-size", "8", "--evidence", "1")
FAST = ("--encoder-learning-rate", "1e-3", "--learning-rate", "0.01", "--hard-negatives", "2", "--mask-unit", "query")


@pytest.fixture(scope="module")
def graph(tiny_graph):
    return tiny_graph.path


@pytest.fixture(scope="module")
def joint(graph, succeeds, tmp_path_factory):
    """A directory with a jointly trained model, and what the command printed."""
    place = tmp_path_factory.mktemp("joint")
    return place, succeeds("train", graph, "--out", place / "model", *JOINT, *FAST)


def test_the_whole_way_with_a_dual_encoder_of_its_own(joint, graph, tiny_dataset, succeeds, refuses):
    place, trained = joint
    assert "dev RR@10" in trained.out
    assert open_model(place / "model").has_encoder
    refuses("embed", place / "model", "--out", place / "e", says=["encoder encode DATASET --checkpoint"])
    encode = ("--checkpoint", place / "model", "--precision", "float32")
    succeeds("encoder", "encode", tiny_dataset, *encode, "--out", place / "features")
    succeeds("embed", place / "model", "--features", place / "features", "--out", place / "embeddings")
    succeeds("index", "build", place / "embeddings", "--out", place / "index")
    found = succeeds("search", "something", "--index", place / "index", "--explain", "--json", "--k", "3").json
    assert len(found["hits"]) == 3
    ranks = {hit["why"]["dual_encoder_rank"] for hit in found["hits"]}
    assert len(ranks) == 3
    embeddings = open_embeddings(place / "embeddings")
    assert embeddings.meta["checkpoint_hash"] == open_features(place / "features").meta["checkpoint_hash"]
    assert embeddings.meta["checkpoint_hash"] != open_model(place / "model").meta["checkpoint_hash"]
    near = ("--model", place / "model", "--features", place / "features")
    succeeds("graph", "neighbors", graph, "p07", *near)
    refuses(
        "graph", "neighbors", graph, "p07", "--model", place / "model", says=["its dual-encoder was trained with it"]
    )
    run = ("--data", tiny_dataset, "--run", place / "test.run")
    succeeds("search", "--index", place / "index", *run)
    assert len((place / "test.run").read_text().splitlines()) == 400
    refuses("embed", place / "model", "--out", place / "embeddings", "--changed", says=["without --changed"])


def test_the_model_has_a_card_with_its_figures_and_an_inspection(joint, succeeds):
    place, _ = joint
    card = (place / "model" / "README.md").read_text(encoding="utf-8")
    dev = open_model(place / "model").meta["dev"]
    assert f"| dev RR@10 of this model | {100 * dev['chosen']['RR@10']:.1f} |" in card
    assert f"| dev RR@10 of the dual-encoder | {100 * dev['dual_encoder']['RR@10']:.1f} |" in card
    assert "| dual_encoder.encoder_learning_rate | 0.001 |" in card
    assert "gnnretrieval encoder encode DATASET --checkpoint MODEL" in card
    said = succeeds("encoder", "inspect", place / "model", "--html", place / "model.html")
    assert "which learns with it" in said.out
    assert "Measures on dev" in (place / "model.html").read_text(encoding="utf-8")
    found = succeeds("encoder", "inspect", place / "model", "--json").json
    assert [record["epoch"] for record in found["history"]] == [0, 1, 2]


@pytest.mark.parametrize("mode", [("--layer", "gat"), JOINT])
def test_a_dry_run_says_what_it_would_take_and_makes_nothing(graph, succeeds, tmp_path, mode):
    said = succeeds("train", graph, "--out", tmp_path / "model", "--dry-run", *mode).out
    assert "60 training queries, 10 dev queries" in said
    assert "s per step, about" in said
    assert "GiB" in said
    assert "nothing was made" in said
    assert list(tmp_path.iterdir()) == []
    assert ("2 epochs of 2 steps: 4 steps" if mode == JOINT else "80 epochs of 1 step: 80 steps") in said


def test_a_recipe_trains_jointly_from_where_frozen_training_ended(recipe_text, succeeds, tmp_path):
    text = recipe_text.replace("epochs = 30", "epochs = 3")
    joint = "[joint]\nevidence = 1.0\nepochs = 1\nlearning_rate = 0.01\nbatch_size = 8\n"
    joint += 'precision = "float32"\n[joint.dual_encoder]\nencoder_learning_rate = 1e-3\n'
    (tmp_path / "tiny.toml").write_text(f"{text}\n{joint}", encoding="utf-8")
    succeeds("run", tmp_path / "tiny.toml")
    place = tmp_path / "tiny"
    model = open_model(place / "model-joint")
    assert model.made_from("start") == place / "model"
    if model.has_encoder:
        assert (place / "features-joint").is_dir()
    again = succeeds("run", tmp_path / "tiny.toml")
    assert "made again" not in again.err


TWO = """
import json, sys
from pathlib import Path
import sentence_transformers
import gnnretrieval.training.gnn.train
from tests.forks import as_two, command

told = []
for words in json.loads(sys.argv[2]):
    codes = as_two(lambda: command(*words), Path(sys.argv[1]))
    told.append([codes, *(Path(sys.argv[1], f"{rank}.log").read_text() for rank in (0, 1))])
print(json.dumps(told))
"""


def test_two_processes_train_what_one_does(joint, graph, tmp_path):
    place, _ = joint
    train = ("train", str(graph), *JOINT, *FAST, "--out")
    other_start = (*train, str(tmp_path / "further"), "--start-from", str(place / "model"))
    commands = json.dumps([(*train, str(tmp_path / "two")), (*train, str(tmp_path / "two")), other_start])
    script = [sys.executable, "-c", TWO, str(tmp_path), commands]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    trained, again, started = json.loads(done.stdout)
    assert trained[0] == [0, 0], trained[1][-3000:]
    logs = [
        [json.loads(line) for line in (model / "log.jsonl").read_text().splitlines()]
        for model in (place / "model", tmp_path / "two")
    ]
    assert len(logs[0]) == len(logs[1]) > 4
    for one, other in zip(*logs, strict=True):
        if "loss" in one:
            assert other["loss"] == pytest.approx(one["loss"], rel=2e-3)
            assert other["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=2e-2)
        else:
            np.testing.assert_allclose([*other["dev"].values()], [*one["dev"].values()], atol=0.06)
    assert again[0] == [0, 0], again[1][-3000:]
    assert "already made from these inputs" in again[1]
    assert f"Error: {place / 'model'}: trained jointly with another dual-encoder" in started[1]
    assert 0 not in started[0]


def test_several_processes_for_a_frozen_encoder_are_refused(graph, refuses, tmp_path, monkeypatch):
    from gnnretrieval.training import ranks

    monkeypatch.setattr(ranks, "ALONE", ranks.Ranks(0, 2))
    monkeypatch.setattr(ranks.Ranks, "agree", lambda self, value: value)
    refuses("train", graph, "--out", tmp_path / "model", says=["over a frozen dual-encoder trains in one process"])
