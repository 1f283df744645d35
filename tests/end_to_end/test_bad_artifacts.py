"""Artifacts that are half made, damaged, of another kind, or in the way."""

import json
import os
import shutil
from pathlib import Path

import pytest

# The command that reads an artifact, by its kind: words before and after its path.
READERS = {
    "features": ("index", "build", "{}", "--out", "{out}"),
    "graph": ("train", "{}", "--epochs", 1, "--out", "{out}"),
    "model": ("embed", "{}", "--out", "{out}"),
    "embeddings": ("index", "build", "{}", "--out", "{out}"),
    "index": ("search", "anything", "--index", "{}"),
}


def _words(reader: str, path: Path, out: Path) -> list[object]:
    return [str(word).format(path, out=out) for word in READERS[reader]]


@pytest.fixture
def copy(made, tmp_path):
    """Copies an artifact so that it may be spoilt, and names its inputs as before."""

    def copied(name: str) -> Path:
        source: Path = getattr(made, name)
        target = shutil.copytree(source, tmp_path / name)
        meta = json.loads((target / "meta.json").read_text(encoding="utf-8"))
        for key, place in meta.get("made_from", {}).items():
            meta["made_from"][key] = os.path.relpath((source / place).resolve(), target)
        (target / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        return target

    return copied


@pytest.mark.parametrize("reader", READERS)
def test_a_half_made_artifact_is_said_to_be(reader, refuses, tmp_path):
    (tmp_path / ".half.partial").mkdir()
    (tmp_path / ".half.partial" / "fingerprint").write_text("0", encoding="utf-8")
    out = tmp_path / "out"
    refuses(*_words(reader, tmp_path / "half", out), says=(tmp_path / "half", "half-made"), out=out)


@pytest.mark.parametrize("reader", READERS)
def test_an_artifact_of_another_kind_is_named(reader, made, refuses, tmp_path):
    wrong = made.graph if reader != "graph" else made.features
    kind = "graph" if reader != "graph" else "features"
    out = tmp_path / "out"
    refuses(
        *_words(reader, wrong, out),
        says=(wrong, f"this directory holds {'a graph' if kind == 'graph' else kind}, not "),
        out=out,
    )


@pytest.mark.parametrize("reader", READERS)
def test_a_directory_that_is_no_artifact(reader, made, refuses, tmp_path):
    out = tmp_path / "out"
    refuses(*_words(reader, made.data, out), says=(made.data, "it has no meta.json"), out=out)
    refuses(*_words(reader, tmp_path / "nowhere", out), says=(tmp_path / "nowhere", "no such directory"), out=out)


HALF_A_CHARACTER = '{"kind": "graph", "format_version": 2, "hash": "\\ud800", "config": {}, "inputs": {}, "files": {}}'
EMPTY_KIND = '{"kind": "", "format_version": 1, "hash": "", "config": {}, "inputs": {}, "files": {}}'


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"kind": "graph"}', EMPTY_KIND, HALF_A_CHARACTER])
def test_a_corrupted_meta_json_is_named(content, copy, refuses, tmp_path):
    graph = copy("graph")
    (graph / "meta.json").write_text(content, encoding="utf-8")
    out = tmp_path / "out"
    refuses(*_words("graph", graph, out), says=(graph / "meta.json", "this file is damaged"), out=out)


@pytest.mark.parametrize("version", [99, "1", None])
def test_a_format_version_that_cannot_be_read(version, copy, refuses):
    graph = copy("graph")
    meta = json.loads((graph / "meta.json").read_text(encoding="utf-8"))
    (graph / "meta.json").write_text(json.dumps(meta | {"format_version": version}), encoding="utf-8")
    refuses("graph", "inspect", graph, says=(graph,))


@pytest.mark.parametrize("key", ["similarity", "encoder", "dataset"])
def test_a_meta_json_that_lacks_an_entry(key, copy, refuses, tmp_path):
    graph = copy("graph")
    meta = json.loads((graph / "meta.json").read_text(encoding="utf-8"))
    del meta[key]
    (graph / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    out = tmp_path / "out"
    refuses(*_words("graph", graph, out), says=(graph,), out=out)


FILES = [
    ("features", "passages.npy"),
    ("graph", "neighbors.npy"),
    ("graph", "edge_features.npy"),
    ("graph", "texts.sqlite"),
    ("model", "model.safetensors"),
    ("embeddings", "passages.npy"),
    ("index", "index.faiss"),
    ("index", "texts.sqlite"),
]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_deleted_file_is_named(name, file, copy, refuses, tmp_path):
    artifact = copy(name)
    (artifact / file).unlink()
    out = tmp_path / "out"
    refuses(*_words(name, artifact, out), says=(artifact, f"lacks its file {file}"), out=out)


@pytest.mark.parametrize("damage", ["cut in half", "empty", "something else"])
@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_damaged_file_is_named(name, file, damage, copy, refuses, tmp_path):
    artifact = copy(name)
    whole = (artifact / file).read_bytes()
    damaged = {"cut in half": whole[: len(whole) // 2], "empty": b"", "something else": b"no such thing"}
    (artifact / file).write_bytes(damaged[damage])
    out = tmp_path / "out"
    refuses(*_words(name, artifact, out), says=(artifact / file,), out=out)


def test_what_is_damaged_can_be_made_again_as_the_message_says(copy, gnnretrieval, made):
    graph = copy("graph")
    (graph / "meta.json").write_text("{", encoding="utf-8")
    build = ("graph", "build", made.data, made.features, "--out", graph, "--overwrite")
    error = gnnretrieval(*build).err
    assert not error or "Delete the directory" in error, "told to make it again by what makes it again"


def test_an_artifact_from_other_inputs_stays_until_overwrite(copy, refuses, succeeds, made):
    graph = copy("graph")
    build = ("graph", "build", made.data, made.features, "--k", 3, "--out", graph)
    before = {file: file.read_bytes() for file in graph.rglob("*") if file.is_file()}
    refuses(*build, says=(graph, "k was 5 and is now 3", "--overwrite"))
    assert {file: file.read_bytes() for file in graph.rglob("*") if file.is_file()} == before
    assert "made again, since k was 5 and is now 3" in succeeds(*build, "--overwrite").err
    assert succeeds("graph", "inspect", graph, "--json").json["k"] == 3
    assert {path.name for path in graph.parent.iterdir()} == {"graph"}


MAKERS = {
    "docstrings": ("data", "docstrings"),
    "encode": ("encoder", "encode", "{data}", "--checkpoint", "{checkpoint}"),
    "graph": ("graph", "build", "{data}", "{features}"),
    "train": ("train", "{graph}"),
    "embed": ("embed", "{model}"),
    "index": ("index", "build", "{embeddings}"),
}


@pytest.fixture
def maker(made, tiny_checkpoint):
    """The words of a command that makes an artifact."""

    def words(name: str) -> list[str]:
        return [word.format(checkpoint=tiny_checkpoint, **made._asdict()) for word in MAKERS[name]]

    return words


@pytest.mark.parametrize("name", MAKERS)
def test_a_user_s_directory_is_never_touched(name, maker, refuses, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work", encoding="utf-8")
    for more in ((), ("--overwrite",)):
        refuses(*maker(name), "--out", mine, *more, says=(mine,))
        assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
        assert (mine / "thesis.txt").read_text(encoding="utf-8") == "years of work"
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_is_never_replaced_nor_written_into(name, maker, refuses, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    refuses(*maker(name), "--out", file, "--overwrite", says=(file,))
    refuses(*maker(name), "--out", file / "inside", says=(file,))
    assert file.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_that_a_user_put_into_an_artifact_survive_overwrite(copy, gnnretrieval, made):
    graph = copy("graph")
    (graph / "notes.txt").write_text("mine", encoding="utf-8")
    gnnretrieval("graph", "build", made.data, made.features, "--k", 3, "--out", graph, "--overwrite")
    assert (graph / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_overwriting_through_a_link_works_more_than_once(copy, succeeds, made, tmp_path):
    graph = copy("graph")
    (tmp_path / "link").symlink_to(graph)
    for k in (3, 4):
        build = ("graph", "build", made.data, made.features, "--k", k, "--out", tmp_path / "link", "--overwrite")
        succeeds(*build)
        assert succeeds("graph", "inspect", tmp_path / "link", "--json").json["k"] == k
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_empty_directory_is_used(maker, succeeds, tmp_path):
    (tmp_path / "empty").mkdir()
    succeeds(*maker("graph"), "--out", tmp_path / "empty")


@pytest.mark.parametrize("out", [".", "/", ""])
def test_a_place_without_a_name_is_refused(out, maker, refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(*maker("graph"), "--out", out)
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_named(maker, refuses, tmp_path):
    place = Path("/proc/graph")  # not even root can write there
    refuses(*maker("graph"), "--out", place, says=("/proc",))
    if os.getuid():
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        refuses(*maker("graph"), "--out", locked / "graph", says=(locked, "Permission denied"))
