import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.storage.arrays import load_array, save_array
from gnnretrieval.storage.artifacts import open_artifact
from gnnretrieval.storage.locks import beside, locked
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import partial_path, recover, scratch
from gnnretrieval.storage.updating import changed_since, own_copy, record_changes, rewrite, update_artifact


@pytest.fixture
def made(tmp_path):
    """An artifact of two arrays and a text."""

    def write(directory: Path) -> dict[str, int]:
        save_array(directory / "kept.npy", np.arange(3.0))
        save_array(directory / "changed.npy", np.zeros(2))
        (directory / "text").write_text("one\n")
        return {"rows": 2, "num_passages": 8}

    return make_artifact(tmp_path / "thing", "graph", inputs={"a": "1"}, config={"k": 1}, write=write)


def grow(artifact, change="x", rows=(1,)):
    def write(directory: Path) -> dict[str, int]:
        save_array(rewrite(directory, "changed.npy"), np.ones(3))
        with own_copy(artifact, directory, "text").open("a") as file:
            file.write("two\n")
        record_changes(directory, open_artifact(artifact.path, "graph"), np.array(rows))
        return {"rows": 3}

    return update_artifact(open_artifact(artifact.path, "graph"), "graph", change={"added": change}, write=write)


def test_an_update_changes_what_it_writes_and_shares_the_rest(made):
    kept = (made.path / "kept.npy").stat().st_ino
    before = load_array(made.path / "changed.npy")
    updated = grow(made)
    assert (made.path / "kept.npy").stat().st_ino == kept
    assert load_array(made.path / "changed.npy").tolist() == [1, 1, 1]
    assert before.tolist() == [0, 0]  # whoever has the old version open keeps it
    assert (made.path / "text").read_text() == "one\ntwo\n"
    assert (updated.meta["rows"], updated.config, updated.meta["inputs"]) == (3, {"k": 1}, {"a": "1"})
    assert updated.hash != made.hash
    assert updated.meta["files"]["kept.npy"] == made.meta["files"]["kept.npy"]
    assert sorted(path.name for path in made.path.parent.iterdir()) == ["thing"]


def test_the_same_update_again_does_nothing(made):
    updated = grow(made)
    assert grow(made).hash == updated.hash
    assert (made.path / "text").read_text() == "one\ntwo\n"


def test_making_it_again_with_the_first_inputs_says_that_it_was_updated(made):
    grow(made)
    with pytest.raises(ArtifactError, match="it was updated since it was made"):
        make_artifact(made.path, "graph", inputs={"a": "1"}, config={"k": 1}, write=lambda directory: {})


def test_it_knows_what_changed_since_any_earlier_state(made):
    second = grow(made, "x", (1, 5))
    third = grow(made, "y", (7,))
    assert changed_since(third, third.hash).tolist() == []
    assert changed_since(third, second.hash).tolist() == [7]
    assert changed_since(third, made.hash).tolist() == [1, 5, 7]
    assert changed_since(third, "never") is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (np.array([8], dtype=np.uint32), "it has row 8, and there are 8"),
        (np.array([1.0]), "an array of float64 (1,), not a list of rows"),
        (np.zeros((1, 1), dtype=np.uint32), "an array of uint32 (1, 1), not a list of rows"),
    ],
)
def test_a_damaged_record_of_changes_is_refused(changes, why, made):
    updated = grow(made)
    save_array(made.path / "changes" / "0000.npy", changes)
    with pytest.raises(ArtifactError, match=re.escape(why)):
        changed_since(updated, made.hash)


def test_one_that_is_refused_leaves_everything_as_it_was(made):
    def write(directory: Path) -> dict[str, int]:
        rewrite(directory, "changed.npy")
        raise GnnRetrievalError("no")

    with pytest.raises(GnnRetrievalError, match="no"):
        update_artifact(made, "graph", change={}, write=write)
    assert open_artifact(made.path, "graph").meta == made.meta
    assert load_array(made.path / "changed.npy").tolist() == [0, 0]
    assert sorted(path.name for path in made.path.parent.iterdir()) == ["thing"]


def test_one_that_was_cut_off_goes_on_from_its_scratch(made):
    seen: list[bool] = []

    def write(directory: Path) -> dict[str, int]:
        half = scratch(directory) / "half"
        seen.append(half.is_file())
        if not seen[-1]:
            save_array(rewrite(directory, "changed.npy"), np.full(9, 9.0))
            half.touch()
            raise KeyboardInterrupt
        save_array(rewrite(directory, "changed.npy"), np.ones(1))
        return {}

    with pytest.raises(KeyboardInterrupt):
        update_artifact(made, "graph", change={"b": 2}, write=write)
    assert load_array(made.path / "changed.npy").tolist() == [0, 0]
    update_artifact(made, "graph", change={"b": 2}, write=write)
    assert seen == [False, True]
    assert load_array(made.path / "changed.npy").tolist() == [1]
    assert load_array(made.path / "kept.npy").tolist() == [0, 1, 2]


def test_another_update_does_not_go_on_from_what_is_left_of_one(made):
    def cut_off(directory: Path) -> dict[str, int]:
        (scratch(directory) / "half").touch()
        save_array(rewrite(directory, "stray.npy"), np.ones(1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_artifact(made, "graph", change={"b": 2}, write=cut_off)
    updated = grow(made)
    assert "stray.npy" not in updated.meta["files"]


@pytest.mark.parametrize("whole", [True, False])
def test_cut_off_between_its_two_renames_it_is_put_right(made, whole):
    place, partial = made.path, partial_path(made.path)
    place.rename(beside(place, "old"))
    partial.mkdir()
    if whole:
        (partial / "meta.json").write_text(json.dumps({**made.meta, "rows": 99}))
        for name in made.meta["files"]:
            os.link(beside(place, "old") / name, partial / name)
    recover(place)
    assert open_artifact(place, "graph").meta["rows"] == (99 if whole else 2)
    assert not beside(place, "old").exists()


def test_two_writers_do_not_meet(made):
    with locked(made.path, "graph"), pytest.raises(ArtifactError, match="another process is making this graph"):
        grow(made)


def test_one_that_another_process_changed_meanwhile_is_refused(made):
    """Otherwise the other process's change would be lost: this one was made from the version before."""
    grow(made, "other")
    with pytest.raises(ArtifactError, match="another process changed it meanwhile"):
        update_artifact(made, "graph", change={"added": "x"}, write=lambda directory: {})
    assert open_artifact(made.path, "graph").meta["updates"][-1]["change"] == {"added": "other"}


def test_there_must_be_something_to_update(made):
    shutil.rmtree(made.path)
    with pytest.raises(ArtifactError, match="no such directory; it should hold a graph"):
        update_artifact(made, "graph", change={}, write=lambda directory: {})
