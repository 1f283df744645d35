import json

import pytest
from toy_stage import Squares

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.shards import Sharding, one_shard, run_stage
from gnnretrieval.shards.object_store import ObjectStore
from gnnretrieval.shards.stored_stage import StoredStage

SQUARES = [number**2 for number in range(20)]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


def test_a_group_without_its_listing_is_not_there(tmp_path, url):
    store, root = ObjectStore(url), tmp_path / "files"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "one").write_bytes(b"1")
    (root / "two").write_bytes(b"22")
    store.put("shards/a", root, sorted(file for file in root.rglob("*") if file.is_file()))
    assert store.groups("shards") == {"shards/a"}
    store.get("shards/a", tmp_path / "copy")
    assert (tmp_path / "copy" / "inner" / "one").read_bytes() == b"1"
    assert (tmp_path / "copy" / "two").read_bytes() == b"22"
    listing = tmp_path / "store" / "shards" / "a.json"
    assert json.loads(listing.read_text()) == {"inner/one": 1, "two": 2}
    listing.write_text('{"two"')  # the end was not written
    assert "shards/a" not in store
    with pytest.raises(GnnRetrievalError, match="no whole group of files is there"):
        store.get("shards/a", tmp_path / "copy")
    listing.unlink()
    assert store.groups("shards") == set()


def test_a_file_that_was_cut_is_refused(tmp_path, url):
    store, file = ObjectStore(url), tmp_path / "file"
    file.write_bytes(b"12345")
    store.put("shards/a", tmp_path, [file])
    (tmp_path / "store" / "shards" / "a" / "file").write_bytes(b"123")
    with pytest.raises(GnnRetrievalError, match="3 bytes are there, of 5"):
        store.get("shards/a", tmp_path / "copy")
    assert not (tmp_path / "copy" / "file").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "inner/../../evil"])
def test_a_listing_that_names_a_file_outside_is_refused(tmp_path, url, name):
    store, file = ObjectStore(url), tmp_path / "file"
    file.write_bytes(b"12345")
    store.put("shards/a", tmp_path, [file])
    (tmp_path / "store" / "evil").write_bytes(b"12345")
    (tmp_path / "store" / "shards" / "a.json").write_text(json.dumps({name: 5}))
    with pytest.raises(GnnRetrievalError, match="damaged; it names the file"):
        store.get("shards/a", tmp_path / "copy" / "inner")
    assert not (tmp_path / "copy").exists()


def test_an_input_is_sent_once_and_copied_once_unless_it_changes(tmp_path, url, capsys):
    store, file = ObjectStore(url), tmp_path / "input.npy"
    file.write_bytes(b"one")
    group, name = store.put_input(file)
    assert (store.local_copy(group) / name).read_bytes() == b"one"
    assert store.put_input(file) == (group, name)
    (tmp_path / "store" / group / name).write_bytes(b"other")  # nobody reads it again
    assert (store.local_copy(group) / name).read_bytes() == b"one"
    file.write_bytes(b"three")
    assert store.put_input(file)[0] != group


def test_shards_go_through_the_store_which_is_empty_at_the_end(tmp_path, url):
    stage = Squares(tmp_path / "here")
    run_stage(stage, Sharding(shards=5, storage=url))
    assert stage.merged() == SQUARES
    assert [file for file in (tmp_path / "store").rglob("*") if file.is_file()] == []


def test_shards_of_several_machines_are_joined_from_the_store(tmp_path, url):
    for number in (1, 3):
        part = one_shard(Squares(tmp_path / f"machine-{number}" / "squares"), number)
        run_stage(part, Sharding(shards=1, storage=url), partly=True)
        assert not part.path(0).exists()
    whole = Squares(tmp_path / "here" / "squares", refused=(1, 3))
    assert StoredStage(whole, url, {}).present(range(5)) == set()  # it computes something else
    whole = Squares(tmp_path / "here" / "squares")
    assert StoredStage(whole, url, {}).present(range(5)) == {1, 3}
    run_stage(whole, Sharding(shards=5, storage=url))
    assert whole.merged() == SQUARES


def test_a_shard_in_the_store_is_not_run_again(tmp_path, url):
    part = one_shard(Squares(tmp_path / "squares"), 3)
    written = []
    for _ in range(2):
        run_stage(part, Sharding(shards=1, storage=url), partly=True)
        (file,) = (tmp_path / "store").rglob("squares-*.json")
        written.append(file.stat().st_mtime_ns)
    assert written[0] == written[1]


def test_the_file_that_says_that_a_shard_is_whole_is_copied_last(tmp_path, url):
    class WithAnother(Squares):
        def run(self, number):
            (self.directory / "z").touch()
            super().run(number)

    stored = StoredStage(WithAnother(tmp_path / "squares"), url, {})
    stored.run(2)
    listing = tmp_path / "store" / f"{stored.group(2)}.json"
    assert list(json.loads(listing.read_text())) == ["run-2-0", "z", "squares-00003-of-00005.npy"]


def test_several_workers_share_a_store_and_one_that_is_killed_is_replaced(tmp_path, url):
    stage = Squares(tmp_path / "squares", noted=tmp_path, killed=(1,))
    run_stage(stage, Sharding(shards=5, workers=2, storage=url))
    assert stage.merged() == SQUARES
    assert stage.runs(1) == 2


def test_a_store_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(
        GnnRetrievalError, match=r"nothing://bucket: this storage cannot be opened \(Protocol not known"
    ):
        run_stage(Squares(tmp_path), Sharding(shards=5, storage="nothing://bucket"))
    with pytest.raises(InputError, match="storage: give a URL such as s3://bucket/work"):
        Sharding.parse({"shards": 5, "storage": "bucket/work"})
