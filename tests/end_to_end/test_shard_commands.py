"""``--shard``, ``--shards`` and ``--storage`` of the commands that have shards."""

import json

from gnnretrieval.graph.edges import neighbor_shards


def files_of(artifact) -> dict[str, str]:
    return json.loads((artifact / "meta.json").read_text("utf-8"))["files"]


def test_jobs_leave_their_shards_in_a_storage_and_another_command_joins_them(
    tiny_dataset, tiny_checkpoint, succeeds, tmp_path, monkeypatch
):
    monkeypatch.setattr(neighbor_shards, "ALIGNED", 1)  # so that 40 passages make two shards
    storage = ("--storage", f"file://{tmp_path}/store")
    encode = ("encoder", "encode", tiny_dataset, "--checkpoint", tiny_checkpoint, "--window", 16)
    build = ("graph", "build", tiny_dataset, tmp_path / "whole", "--k", 3)
    succeeds(*encode, "--out", tmp_path / "whole")
    succeeds(*build, "--out", tmp_path / "whole-graph")
    for command, name, whole in ((encode, "features", "whole"), (build, "graph", "whole-graph")):
        for number in (1, 2):
            said = succeeds(*command, "--out", tmp_path / "job" / name, "--shard", f"{number}/2", *storage)
            assert f"file://{tmp_path}/store: " in said.out
            assert "the same command with --shards 2" in said.err
        assert not list((tmp_path / "job").glob("**/*.npy"))
        said = succeeds(*command, "--out", tmp_path / name, "--shards", 2, *storage)
        assert "shards were done before" in said.err
        assert files_of(tmp_path / name) == files_of(tmp_path / whole)
        assert not [file for file in (tmp_path / "store").rglob("*") if file.is_file()]


def test_options_of_shards_that_do_not_go_together(tiny_dataset, tiny_checkpoint, refuses, tmp_path):
    encode = ("encoder", "encode", tiny_dataset, "--checkpoint", tiny_checkpoint, "--out", tmp_path / "features")
    refuses(*encode, "--storage", "s3://bucket/work", says=("--storage says how shards are run: give --shards too",))
    refuses(*encode, "--shard", "1/2", "--workers", 2, says=("--workers says how shards are run",))
    refuses(*encode, "--shard", "1/2", "--shards", 2, says=("give one",))
    refuses(*encode, "--shards", 2, "--storage", "bucket", says=("give a URL such as s3://bucket/work",))
    assert not (tmp_path / "features").exists()
