"""Shards and inputs by the protocol of Amazon S3, from a server of this machine."""

import pytest
from toy_stage import Squares

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.shards import Sharding, one_shard, run_stage
from gnnretrieval.shards.object_store import ObjectStore
from gnnretrieval.shards.stored_stage import StoredStage

s3fs = pytest.importorskip("s3fs", reason="needs s3fs: pip install 'gnnretrieval[s3]'")


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    boto3 = pytest.importorskip("boto3", reason="needs moto: pip install 'moto[s3]' flask flask-cors")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # which remembers the address of an earlier server
    client = boto3.client("s3")
    client.create_bucket(Bucket="shards")
    yield client
    server.stop()


def keys_in(client) -> list[str]:
    return [item["Key"] for item in client.list_objects_v2(Bucket="shards").get("Contents", [])]


def test_shards_and_inputs_in_a_bucket(bucket, tmp_path):
    url = "s3://shards/work"
    store, file = ObjectStore(url), tmp_path / "input.npy"
    file.write_bytes(b"input")
    group, name = store.put_input(file)
    assert (store.local_copy(group) / name).read_bytes() == b"input"
    stage = Squares(tmp_path / "squares")
    run_stage(one_shard(stage, 3), Sharding(shards=1, storage=url), partly=True)
    assert StoredStage(stage, url, {}).present(range(5)) == {3}
    assert any(key.endswith("squares-00004-of-00005.npy.json") for key in keys_in(bucket))
    run_stage(stage, Sharding(shards=5, storage=url))
    assert stage.merged() == [number**2 for number in range(20)]
    assert stage.runs(3) == 1
    assert keys_in(bucket) == [f"work/{group}.json", f"work/{group}/{name}"]  # inputs stay for the next stage


def test_a_bucket_that_is_not_there_is_named(bucket, tmp_path):
    with pytest.raises(GnnRetrievalError, match=r"s3://nowhere/work: this storage cannot be used \(.*does not exist"):
        run_stage(Squares(tmp_path / "squares"), Sharding(shards=5, storage="s3://nowhere/work"))
    assert not (tmp_path / "squares").exists()  # before any work
