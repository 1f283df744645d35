import json
import os
import shutil
from pathlib import Path

import pytest

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import open_artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.updating import rewrite, update_artifact
from gnnretrieval.storage.verifying import require_as_made, verify


def make(path: Path) -> Path:
    def write(directory: Path) -> None:
        (directory / "inner").mkdir()
        (directory / "inner" / "weights.safetensors").write_bytes(bytes(range(100)))
        (directory / "passages.npy").write_bytes(bytes(range(200)))

    return make_artifact(path, "numbers", inputs={"a": "1"}, config={"k": 5}, write=write).path


def spoil(file: Path) -> None:
    """Other bytes, as many as before."""
    held = file.read_bytes()
    file.write_bytes(held[: len(held) // 2].ljust(len(held), b"\0"))


def change(meta: Path, **entries: object) -> None:
    meta.write_text(json.dumps({**json.loads(meta.read_text()), **entries}))


def test_an_artifact_that_is_as_it_was_made(tmp_path):
    assert verify([make(tmp_path / "a")]) == (1, 2, 300, [])


def test_every_artifact_in_a_run_s_directory_is_looked_at(tmp_path):
    make(tmp_path / "run" / "graph")
    spoil(make(tmp_path / "run" / "model") / "passages.npy")
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "run" / ".model.old")
    found = verify([tmp_path / "run"])
    assert found[:3] == (2, 4, 600)
    where = tmp_path / "run" / "model" / "passages.npy"
    assert found.damaged == [f"{where}: damaged: its bytes are not the ones that were written."]


@pytest.mark.parametrize("name", ["passages.npy", "inner/weights.safetensors"])
def test_zeroes_in_a_file_of_the_same_length_are_found(tmp_path, name):
    path = make(tmp_path / "a")
    spoil(path / name)
    assert open_artifact(path, "numbers")
    with pytest.raises(ArtifactError, match=r"its bytes are not the ones that were written\. Delete the directory"):
        require_as_made(path)


def test_a_file_that_is_missing_or_cut_is_a_line(tmp_path):
    path = make(tmp_path / "a")
    (path / "inner" / "weights.safetensors").unlink()
    os.truncate(path / "passages.npy", 7)
    assert verify([path]).damaged == [
        f"{path}/inner/weights.safetensors: missing.",
        f"{path}/passages.npy: 7 bytes long, and 200 were written.",
    ]
    with pytest.raises(ArtifactError, match="1 more file is damaged"):
        require_as_made(path)


def test_what_a_changed_meta_json_hides_is_found(tmp_path):
    path = make(tmp_path / "a")
    files = json.loads((path / "meta.json").read_text())["files"]
    change(path / "meta.json", files={name: digest for name, digest in files.items() if name != "passages.npy"})
    assert verify([path]).damaged == [
        f"{path}/meta.json: damaged: its hash is not that of its files.",
        f"{path}/passages.npy: it is not one of the artifact's files.",
    ]


@pytest.mark.parametrize("entries", [{"config": {"k": 6}}, {"inputs": {"a": "2"}}])
def test_changed_settings_are_found(tmp_path, entries):
    path = make(tmp_path / "a")
    change(path / "meta.json", **entries)
    assert verify([path]).damaged == [
        f"{path}/meta.json: damaged: its fingerprint is not that of its inputs and settings."
    ]


@pytest.mark.parametrize("entries", [{"num_passages": 3}, {"seed": 7}, {"sizes": {}}, {"added": 1}])
def test_any_other_changed_entry_is_found(tmp_path, entries):
    path = make(tmp_path / "a")
    change(path / "meta.json", **entries)
    assert verify([path]).damaged == [f"{path}/meta.json: damaged: its entries are not the ones that were written."]


def test_an_artifact_of_before_checksums_is_whole(tmp_path):
    path = make(tmp_path / "a")
    meta = json.loads((path / "meta.json").read_text())
    del meta["checksum"]
    (path / "meta.json").write_text(json.dumps(meta))
    assert verify([path]).damaged == []


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{}", '{"kind": "graph", "format_version": 1, "files": 3}'])
def test_a_meta_json_that_is_none_is_a_line(tmp_path, text):
    path = make(tmp_path / "a")
    (path / "meta.json").write_text(text)
    assert verify([path]).damaged[0] == f"{path}/meta.json: this file is damaged."


def test_a_file_outside_the_directory_is_none_of_its_files(tmp_path):
    path = make(tmp_path / "a")
    (tmp_path / "secret").write_text("x")
    change(path / "meta.json", files={"../secret": "0"})
    assert f"{path}/../secret: missing." in verify([path]).damaged


def test_notes_beside_its_files_are_no_damage(tmp_path):
    path = make(tmp_path / "a")
    (path / "notes.txt").write_text("mine")
    assert verify([path]).damaged == []


def test_after_updates_it_is_as_it_was_made(tmp_path):
    path = make(tmp_path / "a")
    for number in range(2):

        def write(directory: Path, number: int = number) -> dict[str, int]:
            rewrite(directory, "passages.npy").write_bytes(bytes([number] * 9))
            return {}

        inputs = {"a": "2"} if number else None
        update_artifact(
            open_artifact(path, "numbers"), "numbers", change={"number": number}, inputs=inputs, write=write
        )
        assert verify([path]).damaged == []


def test_where_there_is_no_artifact_that_is_said(tmp_path):
    with pytest.raises(ArtifactError, match="no such directory; it should hold an artifact"):
        verify([tmp_path / "none"])
    with pytest.raises(ArtifactError, match="it holds no artifact"):
        verify([tmp_path])
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="this is a file, and an artifact is a directory"):
        verify([tmp_path / "file"])
