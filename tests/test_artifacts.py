import json
import multiprocessing
import shutil
from pathlib import Path

import pytest

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.storage import artifacts, making
from gnnretrieval.storage.artifacts import open_artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import partial_path
from gnnretrieval.storage.provenance import sha256_of_json, write_json


class Killed(BaseException):
    """Stands for a process that ends at once."""


class Maker:
    """Makes an artifact ``numbers`` of three files, one after the other, and counts what it writes."""

    def __init__(self, path: Path, text: str = "one", stop_before: int | None = None) -> None:
        self.path, self.text, self.stop_before = path, text, stop_before
        self.written: list[int] = []

    def write(self, directory: Path):
        for number in range(3):
            if number == self.stop_before:
                raise Killed
            file = directory / f"{number}.txt"
            if not file.exists():
                file.write_text(f"{self.text} {number}")
                self.written.append(number)
        return {"count": 3}

    def make(self, **options):
        return make_artifact(
            self.path,
            options.pop("kind", "numbers"),
            inputs={"text": sha256_of_json(self.text)},
            config=options.pop("config", {"k": 5}),
            write=self.write,
            **options,
        )


def content(path: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(path.iterdir())}


def test_an_artifact_says_what_it_is_and_what_it_was_made_from(tmp_path):
    made = Maker(tmp_path / "a").make(seed=3)
    opened = open_artifact(tmp_path / "a", "numbers")
    assert opened.meta == made.meta
    assert {key: made.meta[key] for key in ("kind", "format_version", "config", "seed", "count")} == {
        "kind": "numbers",
        "format_version": 1,
        "config": {"k": 5},
        "seed": 3,
        "count": 3,
    }
    assert made.meta["inputs"] == {"text": sha256_of_json("one")}
    assert made.meta["versions"]["torch"]
    assert set(made.meta["files"]) == {"0.txt", "1.txt", "2.txt"}
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_one_that_is_replaced_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    one, two = (Maker(tmp_path / name, name).make() for name in ("one", "two"))
    real, opened = artifacts._open_at, []

    def replaced(path, *how):
        opened.append(path)
        if len(opened) == 1:
            (path / "meta.json").unlink()
            (path / "meta.json").write_bytes((two.path / "meta.json").read_bytes())
            raise ArtifactError("a file was cut: it was of the other version")
        return real(path, *how)

    monkeypatch.setattr(artifacts, "_open_at", replaced)
    assert open_artifact(one.path, "numbers").hash == two.hash
    assert len(opened) == 2


def test_a_link_is_resolved_when_it_is_opened(tmp_path):
    one, two = (Maker(tmp_path / name, name).make() for name in ("one", "two"))
    link = tmp_path / "link"
    link.symlink_to(one.path)
    opened = open_artifact(link, "numbers")
    link.unlink()
    link.symlink_to(two.path)
    assert opened.path.resolve() == one.path.resolve()


def test_two_artifacts_have_equal_hashes_when_their_files_do(tmp_path):
    first, second = Maker(tmp_path / "a").make(), Maker(tmp_path / "b").make(config={"k": 6})
    assert first.hash == second.hash
    assert Maker(tmp_path / "c", "two").make().hash != first.hash


def test_an_artifact_made_before_from_the_same_inputs_is_reused(tmp_path, said):
    Maker(tmp_path / "a").make()
    again = Maker(tmp_path / "a")
    again.make()
    assert again.written == []
    assert "already made" in said[-1]


def test_a_half_made_artifact_cannot_be_opened_and_is_resumed(tmp_path, said):
    with pytest.raises(Killed):
        Maker(tmp_path / "a", stop_before=2).make()
    assert not (tmp_path / "a").exists()
    with pytest.raises(ArtifactError, match=r"half-made numbers\. Run the command that makes it again"):
        open_artifact(tmp_path / "a", "numbers")
    again = Maker(tmp_path / "a")
    made = again.make()
    assert again.written == [2]
    assert "going on" in said[-1]
    assert set(made.meta["files"]) == {"0.txt", "1.txt", "2.txt"}
    assert made.hash == Maker(tmp_path / "b").make().hash
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "config", "change"), [("two", {"k": 5}, "its text changed"), ("one", {"k": 9}, "k was 5 and is now 9")]
)
def test_what_an_interrupted_run_left_is_not_begun_anew_unasked(tmp_path, text, config, change, said):
    with pytest.raises(Killed):
        Maker(tmp_path / "a", stop_before=2).make()
    maker = Maker(tmp_path / "a", text)
    with pytest.raises(ArtifactError, match=f"left numbers half made, and {change}. Run the command that began it"):
        maker.make(config=config)
    assert Maker(tmp_path / "a").make()
    assert maker.written == []
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(Killed):
        Maker(tmp_path / "a", stop_before=2).make()
    maker.make(config=config, overwrite=True)
    assert maker.written == [0, 1, 2]
    assert f"begun again, since it was half made and {change}" in said[-1]


def test_what_an_error_ended_is_begun_anew_with_other_settings(tmp_path):
    def refuse(directory):
        (directory / "begun").touch()
        raise GnnRetrievalError("k = 5 is no good.")

    maker = Maker(tmp_path / "a")
    with pytest.raises(GnnRetrievalError, match="no good"):
        make_artifact(tmp_path / "a", "numbers", inputs={}, config={"k": 5}, write=refuse)
    maker.make(config={"k": 6})
    assert maker.written == [0, 1, 2]


def test_what_was_written_is_not_lost_when_killed_before_the_meta_json_is_there(tmp_path, monkeypatch):
    """Its files are hashed there, which takes minutes where they are large."""

    def killed(path):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(making, "sha256_of_file", killed)
        with pytest.raises(Killed):
            Maker(tmp_path / "a").make()
    again = Maker(tmp_path / "a")
    assert again.make().hash == Maker(tmp_path / "b").make().hash
    assert again.written == []


def test_changed_inputs_or_settings_are_named_and_nothing_is_replaced_unasked(tmp_path):
    Maker(tmp_path / "a").make()
    before = content(tmp_path / "a")
    with pytest.raises(ArtifactError, match=r"its text changed. Pass --overwrite or another path"):
        Maker(tmp_path / "a", "two").make()
    with pytest.raises(ArtifactError, match="k was 5 and is now 6"):
        Maker(tmp_path / "a").make(config={"k": 6})
    with pytest.raises(ArtifactError, match="new was None and is now 1"):
        Maker(tmp_path / "a").make(config={"k": 5, "new": 1})
    assert content(tmp_path / "a") == before
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_an_input_that_is_new_or_left_out_is_named(tmp_path):
    def make(**inputs):
        make_artifact(tmp_path / "a", "numbers", inputs=inputs, config={}, write=lambda directory: {})

    make(text="1", features="2")
    with pytest.raises(ArtifactError, match="there already, and it has no features now"):
        make(text="1")
    with pytest.raises(ArtifactError, match="there already, and it had no labels before; it has no features now"):
        make(text="1", labels="3")


def test_with_overwrite_it_is_replaced_whole(tmp_path, said):
    Maker(tmp_path / "a").make()
    maker = Maker(tmp_path / "a", "two")
    maker.make(overwrite=True)
    assert (tmp_path / "a" / "0.txt").read_text() == "two 0"
    assert "made again, since its text changed" in said[-1]
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_killed_while_it_is_made_again_the_old_one_stays_whole(tmp_path):
    Maker(tmp_path / "a").make()
    before = content(tmp_path / "a")
    with pytest.raises(Killed):
        Maker(tmp_path / "a", "two", stop_before=1).make(overwrite=True)
    assert content(tmp_path / "a") == before
    open_artifact(tmp_path / "a", "numbers")


def test_an_artifact_of_another_kind_is_never_touched(tmp_path):
    Maker(tmp_path / "a").make()
    before = content(tmp_path / "a")
    with pytest.raises(ArtifactError, match="holds numbers, not a graph"):
        Maker(tmp_path / "a", "two").make(kind="graph", overwrite=True)
    assert content(tmp_path / "a") == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "meta.json"])
def test_a_users_directory_is_never_touched(tmp_path, name, overwrite):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / name).write_text("{}")
    with pytest.raises(ArtifactError, match="mine"):
        Maker(mine).make(overwrite=overwrite)
    assert content(mine) == {name: "{}"}
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_users_file_is_never_touched(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ArtifactError, match="this is a file, and numbers would be made here"):
        Maker(tmp_path / "mine").make(overwrite=True)
    assert (tmp_path / "mine").read_text() == "mine"


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "a").mkdir()
    Maker(tmp_path / "a").make()
    open_artifact(tmp_path / "a", "numbers")


def test_parent_directories_are_made(tmp_path):
    Maker(tmp_path / "new" / "deep" / "a").make()
    open_artifact(tmp_path / "new" / "deep" / "a", "numbers")


def test_the_current_directory_as_a_place_is_an_error_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="holds other files and is left as it is"):
        Maker(Path()).make()
    with pytest.raises(ArtifactError, match=r"holds no numbers: it has no meta\.json"):
        open_artifact(".", "numbers")


def _hold(path: Path, started, finish) -> None:
    def write(directory: Path) -> None:
        (directory / "0.txt").write_text("by the other process")
        started.set()
        finish.wait(30)

    make_artifact(path, "numbers", inputs={}, config={}, write=write)


def test_two_processes_cannot_make_one_artifact_at_a_time(tmp_path):
    context = multiprocessing.get_context("fork")
    started, finish = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "a", started, finish))
    other.start()
    try:
        assert started.wait(30)
        with pytest.raises(ArtifactError, match="another process is making this numbers"):
            Maker(tmp_path / "a").make()
    finally:
        finish.set()
        other.join(30)
    assert open_artifact(tmp_path / "a", "numbers").meta["inputs"] == {}
    assert content(tmp_path / "a")["0.txt"] == "by the other process"


def test_a_lock_that_a_killed_process_left_does_not_hold(tmp_path):
    (tmp_path / ".a.lock").write_text("")
    Maker(tmp_path / "a").make()
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format_version": 99}, "format version 99; this gnnretrieval reads up to 1. Upgrade it"),
        ({"files": {"gone.npy": "0"}}, "lacks its file gone.npy"),
        ({"kind": "index"}, "holds an index, not numbers"),
    ],
)
def test_an_artifact_that_does_not_fit_is_refused(tmp_path, change, reason):
    made = Maker(tmp_path / "a").make()
    write_json(tmp_path / "a" / "meta.json", {**made.meta, **change})
    with pytest.raises(ArtifactError, match=reason):
        open_artifact(tmp_path / "a", "numbers")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '{"kind": "numbers"}', '{"kind": "numbers", "files": 1}'])
def test_a_damaged_meta_json_is_refused_in_a_sentence(tmp_path, text):
    Maker(tmp_path / "a").make()
    (tmp_path / "a" / "meta.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"meta\.json: this file is damaged"):
        open_artifact(tmp_path / "a", "numbers")


def test_a_directory_that_is_not_there_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ArtifactError, match="no such directory; it should hold numbers"):
        open_artifact(tmp_path / "none", "numbers")


def test_a_json_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_hash_of_json_does_not_depend_on_the_order_of_keys():
    assert sha256_of_json({"a": 1, "b": [2]}) == sha256_of_json({"b": [2], "a": 1})
    assert sha256_of_json({"a": [1, 2]}) != sha256_of_json({"a": [2, 1]})


def test_an_input_is_found_again_when_both_are_moved_together(tmp_path):
    place = tmp_path / "first"
    source = Maker(place / "source").make()

    def write(directory: Path):
        return {"made_from": {"source": artifacts.relative_to(place / "a", source.path)}}

    make_artifact(place / "a", "numbers", inputs={}, config={}, write=write)
    place.rename(tmp_path / "second")
    moved = open_artifact(tmp_path / "second" / "a", "numbers")
    assert moved.made_from("source").resolve() == (tmp_path / "second" / "source").resolve()
    with pytest.raises(ArtifactError, match="does not say where its dataset lies"):
        moved.made_from("dataset")


def test_the_partial_directory_lies_beside_its_place(tmp_path):
    assert partial_path(tmp_path / "a") == tmp_path / ".a.partial"
