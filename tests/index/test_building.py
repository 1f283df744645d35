"""Shards within a memory, and what cannot be built."""

import pytest

import gnnretrieval.index.building as building
from gnnretrieval.errors import InputError
from gnnretrieval.index import build_index
from gnnretrieval.index.settings import IndexSettings


def build(features, out, **settings):
    return build_index(features, out, IndexSettings(**settings))


def test_more_lists_than_vectors_are_refused(clustered, tmp_path):
    with pytest.raises(InputError, match=r"has 4,096 lists, and there are 1,200 vectors: give IVF35 or fewer"):
        build(clustered, tmp_path / "index", factory="IVF4096,Flat")


def test_too_few_vectors_for_codes_are_said(make_features, tmp_path):
    features = make_features(tmp_path / "features", 40)
    with pytest.raises(InputError, match=r"factory 'PQ4' cannot be learned from 40 vectors .*Number of training"):
        build(features, tmp_path / "index", factory="PQ4")


@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8", "HNSW8"])
def test_an_index_in_shards_finds_what_one_in_one_piece_finds(factory, make_features, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_BLOCK", 100)
    features = make_features(tmp_path / "features")
    search = {"search": "nprobe=16"} if "IVF" in factory else {}
    whole = build(features, tmp_path / "whole", factory=factory, training=600, **search)
    small = 45_000 / 2**30
    index = build(features, tmp_path / "index", factory=factory, training=600, memory=small, **search)
    assert index.meta["shards"] > 1
    assert len(list((tmp_path / "index").glob("index-*.faiss"))) == index.meta["shards"]
    found, _ = index.search(features.queries, 10)
    expected, _ = whole.search(features.queries, 10)
    assert (found == expected).mean() > (0.95 if factory == "HNSW8" else 0.999)


def test_a_memory_that_holds_no_block_is_refused(clustered, tmp_path):
    with pytest.raises(InputError, match=r"memory of 1e-05 GiB is too little to build in: give 0\.\d+ or more"):
        build(clustered, tmp_path / "index", memory=1e-5)


def test_building_goes_on_after_the_last_whole_shard(make_features, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_BLOCK", 100)
    features = make_features(tmp_path / "features")
    settings = {"factory": "IVF16,SQ8", "memory": 45_000 / 2**30, "training": 600, "search": "nprobe=16"}
    whole = build(features, tmp_path / "whole", **settings)
    added = building.add_vectors
    count = []

    def stops(index, vectors, rows):
        count.append(len(rows))
        if len(count) == 11:
            raise KeyboardInterrupt
        added(index, vectors, rows)

    monkeypatch.setattr(building, "add_vectors", stops)
    with pytest.raises(KeyboardInterrupt):
        build(features, tmp_path / "index", **settings)
    assert not (tmp_path / "index").exists()
    index = build(features, tmp_path / "index", **settings)
    assert sum(count) < 1200 + 1100
    assert index.hash == whole.hash
