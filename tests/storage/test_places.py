import os
import shutil
from pathlib import Path

import pytest

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage import durable, places
from gnnretrieval.storage.artifacts import kind_of, open_artifact, whole_file
from gnnretrieval.storage.locks import beside, locked
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import find, partial_path, put_in_place, recover, settle


class Killed(BaseException):
    """Stands for a process that ends at once."""


def make(path: Path, text: str):
    def write(directory: Path) -> None:
        (directory / "text").write_text(text)

    return make_artifact(path, "numbers", inputs={"text": text}, config={}, write=write, overwrite=True)


def text_of(path: Path) -> str:
    return (open_artifact(path, "numbers").path / "text").read_text()


@pytest.fixture
def two(tmp_path):
    """An artifact, and a whole new version beside it that waits for its place."""
    path = make(tmp_path / "a", "old").path
    make(tmp_path / "b", "new").path.rename(partial_path(path))
    return path


def test_the_new_version_takes_the_place_of_the_old_without_a_moment_between(two, monkeypatch):
    seen = []

    def watched(call):
        def watching(*words, **more):
            done = call(*words, **more)
            seen.append(text_of(two))
            return done

        return watching

    for name in ("rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    monkeypatch.setattr(places, "exchange", watched(places.exchange))
    put_in_place(partial_path(two), two)
    assert seen[:2] == ["old", "new"]
    assert set(seen[2:]) == {"new"}
    assert [file.name for file in two.parent.iterdir()] == ["a"]


@pytest.mark.parametrize("renames", range(5))
def test_without_exchange_it_is_found_at_every_moment_too(two, monkeypatch, renames):
    """Killed before each rename: a reader finds the old or the new, and the next writer puts everything right."""
    rename, done = Path.rename, []

    def killed(self, target):
        if len(done) == renames:
            raise Killed
        done.append(target)
        return rename(self, target)

    monkeypatch.setattr(places, "exchange", lambda one, other: False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        if renames < 4:
            with pytest.raises(Killed):
                put_in_place(partial_path(two), two)
        else:
            put_in_place(partial_path(two), two)
    assert text_of(two) in ("old", "new")
    assert kind_of(two) == "numbers"
    assert make(two, "new").path == two
    assert text_of(two) == "new"
    assert [file.name for file in two.parent.iterdir()] == ["a"]


def cut_off(two: Path) -> None:
    """What a kill between the two renames leaves."""
    two.rename(beside(two, "old"))


def test_a_reader_that_may_not_write_reads_the_whole_one_where_it_is(two, monkeypatch):
    cut_off(two)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(places, "settle", lambda path, kind: None)
    assert text_of(two) == "new"
    assert open_artifact(two, "numbers").path == partial_path(two)


def test_a_reader_waits_for_a_writer_that_is_between_its_renames(two, monkeypatch):
    cut_off(two)
    with locked(two, "numbers"):
        monkeypatch.setattr(places.time, "sleep", lambda seconds: recover(two))
        assert find(two, "numbers") == two
    assert text_of(two) == "new"


def test_a_reader_does_not_wait_for_ever(two, monkeypatch):
    cut_off(two)
    monkeypatch.setattr(places, "_GAP", 0.0)
    with locked(two, "numbers"):
        assert find(two, "numbers") == partial_path(two)


def test_what_was_half_made_does_not_take_the_place(two):
    cut_off(two)
    (partial_path(two) / "meta.json").unlink()
    assert text_of(two) == "old"


@pytest.mark.parametrize("left", ["lock", "lease", "old"])
def test_what_a_killed_command_left_is_taken_away_by_the_next(tmp_path, left):
    path = make(tmp_path / "a", "one").path
    if left == "old":
        shutil.copytree(path, beside(path, "old"))
    else:
        beside(path, left).write_text('{"host": "elsewhere", "pid": 1}')
        os.utime(beside(path, left), (0, 0))
    make(path, "one")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_settling_leaves_alone_what_another_process_writes(two):
    shutil.copytree(two, beside(two, "old"))
    with locked(two, "numbers"):
        settle(two, "numbers")
        assert beside(two, "old").is_dir()
    settle(two, "numbers")
    assert not beside(two, "old").exists()


def test_half_deleted_it_is_neither_opened_nor_gone_on_from(two, monkeypatch):
    def killed(*words, **more):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            places.discard(partial_path(two))
    assert not places.is_whole(partial_path(two))
    assert make(two, "new").path == two
    assert text_of(two) == "new"


def test_a_whole_file_s_name_comes_after_its_bytes(tmp_path, monkeypatch):
    calls = []
    replace = Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: calls.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    monkeypatch.setattr(Path, "replace", lambda self, target: (calls.append("replace"), replace(self, target))[1])
    with whole_file(tmp_path / "deep" / "x") as partial:
        partial.write_text("x")
    place = str(tmp_path)
    assert calls == [place, f"{place}/deep/.x.partial", "replace", f"{place}/deep"]


def test_truncated_it_is_refused(tmp_path):
    path = make(tmp_path / "a", "some text").path
    os.truncate(path / "text", 4)
    with pytest.raises(ArtifactError, match=r"text: 4 bytes long, and 9 were written: it was cut or changed\. Delete"):
        open_artifact(path, "numbers")


def test_of_an_earlier_version_without_sizes_it_opens(tmp_path):
    path = make(tmp_path / "a", "some text").path
    meta = (path / "meta.json").read_text()
    (path / "meta.json").write_text(meta.replace('"sizes"', '"other"'))
    assert text_of(path) == "some text"


def test_a_directory_that_may_be_written_to_and_not_listed_is_not_synced(tmp_path, monkeypatch):
    def refused(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(durable.os, "open", refused)
    durable.sync_directory(tmp_path)
    with pytest.raises(PermissionError):
        durable.sync_file(tmp_path)
