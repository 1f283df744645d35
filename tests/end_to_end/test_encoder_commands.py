"""``gnnretrieval encoder train`` and ``inspect``, and what is trained as a provider of node features."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from gnnretrieval.encoders.features import open_features

RECIPE = """
name = "tiny-method"

[encoder]
checkpoint = "{checkpoint}"
precision = "float32"

[train]
shared = true
epochs = 2
batch_size = 16
learning_rate = 1e-3
precision = "float32"
dropout = 0.0

[[stages]]
name = "bm25-negatives"
kind = "negatives"
by = "bm25"
settings = {{ top_k = 5 }}

[[stages]]
name = "trained"
kind = "encoder"
examples = ["labels", "bm25-negatives"]

[[stages]]
name = "by-sentence"
kind = "encoder"
examples = ["labels"]
encoder = {{ sentences = "token" }}
settings = {{ without_answer = "overlap", hard_negatives = 0 }}
"""


@pytest.fixture(scope="module")
def trained(tiny_dataset, tiny_checkpoint, succeeds, tmp_path_factory):
    """Directory of a recipe that was trained, and what the command printed."""
    directory = tmp_path_factory.mktemp("method")
    (directory / "method.toml").write_text(RECIPE.format(checkpoint=tiny_checkpoint), encoding="utf-8")
    outcome = succeeds(
        "encoder", "train", directory / "method.toml", "--data", tiny_dataset, "--out", directory / "work"
    )
    return directory, outcome


def test_the_encoders_are_compared_and_the_next_command_named(trained):
    directory, outcome = trained
    rows = [
        line.split()[0] for line in outcome.out.splitlines() if re.match(r"(bm25|start|trained|by-sentence)\b", line)
    ]
    assert rows == ["bm25", "start", "trained", "by-sentence"]
    assert f"--checkpoint {directory / 'work' / 'by-sentence'}" in outcome.err
    assert "[trained]" in outcome.err
    assert "kept epoch" in outcome.err
    assert f"The report, to open in a browser: {directory / 'work' / 'report.html'}" in outcome.out
    assert (directory / "work" / "report.html").is_file()
    assert not list((directory / "work").rglob(".*"))


def test_inspect_says_what_it_learned_from_and_how_it_went(trained, succeeds, tmp_path):
    directory, _ = trained
    place = directory / "work" / "trained"
    text = succeeds("encoder", "inspect", place, "--html", tmp_path / "log.html").out
    assert "2 epochs, batch size 16, adam 0.001, seed 0, loss contrastive" in text
    assert "shared weights" in text
    found = succeeds("encoder", "inspect", place, "--json").json
    assert [record["epoch"] for record in found["history"]] == [0, 1, 2]
    assert "<html" in (tmp_path / "log.html").read_text(encoding="utf-8")[:200]


@pytest.mark.parametrize("stage", ["trained", "by-sentence"])
def test_a_trained_encoder_gives_a_graph_its_node_features(trained, stage, recipe_text, succeeds, tmp_path):
    directory, _ = trained
    place = directory / "work" / stage
    text = re.sub(r'checkpoint = ".*"', f'checkpoint = "{place}"', recipe_text).replace("epochs = 30", "epochs = 1")
    (tmp_path / "tiny.toml").write_text(text, encoding="utf-8")
    succeeds("run", tmp_path / "tiny.toml")
    features = open_features(tmp_path / "tiny" / "features")
    assert features.meta["encoder"]["sentences"] == ("token" if stage == "by-sentence" else "none")
    assert np.array_equal(features.passages, open_features(directory / "work" / f"{stage}-features").passages)
    found = succeeds("search", "bada gogo", "--index", tmp_path / "tiny" / "index", "--json").json
    assert len(found["hits"] if isinstance(found, dict) else found) > 0


def test_files_of_vectors_give_a_graph_its_node_features(trained, recipe_text, succeeds, tmp_path):
    directory, _ = trained
    features = open_features(directory / "work" / "trained-features")
    for name in ("passages", "queries"):
        np.save(tmp_path / f"{name}.npy", np.asarray(getattr(features, name), dtype=np.float32))
    vectors = '[vectors]\nname = "mine"\nsimilarity = "cosine"\npassages = "passages.npy"\nqueries = "queries.npy"\n'
    text = re.sub(r"(?ms)^\[encoder\].*?(?=^\[)", vectors, recipe_text).replace("epochs = 30", "epochs = 1")
    assert "[encoder]" not in text
    (tmp_path / "tiny.toml").write_text(text, encoding="utf-8")
    succeeds("run", tmp_path / "tiny.toml")
    made = open_features(tmp_path / "tiny" / "features")
    assert made.meta["source"] == "vectors made outside"
    np.testing.assert_allclose(made.passages, features.passages, atol=1e-3)


def test_two_processes_train_the_encoder_that_one_does(trained, tiny_dataset, tmp_path):
    directory, _ = trained
    command = ["encoder", "train", str(directory / "method.toml"), "--data", str(tiny_dataset)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    launch += ["--rdzv-endpoint=localhost:0", "-m", "gnnretrieval", *command, "--out", str(tmp_path / "two")]
    done = subprocess.run([*launch, "--only", "trained"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("[trained]") == 1  # one speaks
    logs = [
        [json.loads(line) for line in (place / "trained" / "log.jsonl").read_text().splitlines()]
        for place in (directory / "work", tmp_path / "two")
    ]
    assert len(logs[0]) == len(logs[1])
    for one, other in zip(*logs, strict=True):
        if "loss" in one:
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)
            assert other["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=1e-2)
        else:
            assert other["dev"] == one["dev"]
    vectors = [open_features(place / "trained-features").passages for place in (directory / "work", tmp_path / "two")]
    np.testing.assert_allclose(vectors[0], vectors[1], atol=5e-3)


def test_what_cannot_be_trained_is_refused_in_a_sentence(trained, tiny_dataset, tiny_checkpoint, refuses, tmp_path):
    directory, _ = trained
    method = directory / "method.toml"
    out = tmp_path / "out"
    refuses("encoder", "train", "rocketqs", "--data", tiny_dataset, "--out", out, says=["Did you mean 'rocketqa'"])
    refuses("encoder", "train", method, "--out", out, says=["--data"])
    refuses("encoder", "train", method, "--data", tmp_path / "none", "--out", out, says=["no such directory"])
    only = ("--only", "step-9")
    refuses("encoder", "train", method, "--data", tiny_dataset, "--out", out, *only, says=["no stage 'step-9'"])
    refuses("encoder", "inspect", tiny_dataset, says=["meta.json"])
    sentences = tmp_path / "sentences.toml"
    text = RECIPE.format(checkpoint=tiny_checkpoint).replace('without_answer = "overlap"', 'without_answer = "skip"')
    sentences.write_text(text, encoding="utf-8")
    command = ("encoder", "train", sentences, "--data", tiny_dataset, "--out", tmp_path / "s")
    refuses(*command, "--only", "by-sentence", says=["metadata.answers", 'without_answer = "overlap"'])
    untrainable = tmp_path / "untrainable"
    shutil.copytree(tiny_checkpoint, untrainable)
    (untrainable / "model.safetensors").write_bytes(b"damaged")
    damaged = tmp_path / "damaged.toml"
    damaged.write_text(RECIPE.format(checkpoint=untrainable), encoding="utf-8")
    refuses("encoder", "train", damaged, "--data", tiny_dataset, "--out", tmp_path / "d", says=["cannot be loaded"])
