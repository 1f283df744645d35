"""Damaged artifacts are found by ``verify``, and by ``--verify`` of the commands that read them."""

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def spoilt(made, tmp_path):
    """Copies of a model and an index, half of whose large files is zeroes."""
    for place, name in ((made.model, "model.safetensors"), (made.index, "index.faiss")):
        file: Path = shutil.copytree(place, tmp_path / place.name) / name
        held = file.read_bytes()
        file.write_bytes(held[: len(held) // 2].ljust(len(held), b"\0"))
    return tmp_path


def test_every_kind_of_artifact_is_as_it_was_made(made, succeeds):
    kinds = (made.features, made.graph, made.model, made.embeddings, made.index)
    assert "5 artifacts, " in succeeds("verify", *kinds).out
    assert "all as they were made" in succeeds("verify", made.index.parent).out


def test_damage_is_a_line_a_file_and_exit_code_1(spoilt, made, gnnretrieval):
    found = gnnretrieval("verify", spoilt, made.graph)
    assert found.code == 1
    assert found.out.splitlines() == [
        f"{spoilt}/index/index.faiss: damaged: its bytes are not the ones that were written.",
        f"{spoilt}/model/model.safetensors: damaged: its bytes are not the ones that were written.",
    ]
    assert found.err == "Error: 2 files are damaged. Delete their directories, and run the commands that make them.\n"


def test_serve_and_embed_refuse_what_is_damaged_where_they_are_asked_to_look(spoilt, made, refuses, tmp_path):
    refuses("serve", spoilt / "index", "--verify", says=("index.faiss: damaged",))
    words = ("embed", spoilt / "model", "--graph", made.graph, "--verify", "--out", tmp_path / "embeddings")
    refuses(*words, says=("model.safetensors: damaged",), out=tmp_path / "embeddings")


def test_weights_and_faiss_files_must_be_recorded(made, refuses, tmp_path):
    for place, name in ((made.model, "model.safetensors"), (made.index, "index.faiss")):
        file = shutil.copytree(place, tmp_path / place.name) / "meta.json"
        meta = json.loads(file.read_text())
        del meta["files"][name]
        file.write_text(json.dumps(meta))
    refuses("index", "inspect", tmp_path / "index", says=("it does not list index.faiss",))
    refuses("embed", tmp_path / "model", "--out", tmp_path / "e", says=("it does not list model.safetensors",))
