"""Shards within a memory, and what cannot be built."""

import numpy as np
import pytest

import gnnretrieval.index.building as building
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index
from gnnretrieval.index.faiss_index import open_index
from gnnretrieval.index.part_shards import PartShards
from gnnretrieval.index.search import index_run
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.shards import Sharding


def build(features, out, **settings):
    return build_index(features, out, IndexSettings(**settings))


def test_more_lists_than_vectors_are_refused(clustered, tmp_path):
    with pytest.raises(InputError, match=r"has 4,096 lists, and there are 1,200 vectors: give IVF35 or fewer"):
        build(clustered, tmp_path / "index", factory="IVF4096,Flat")


def test_too_few_vectors_for_codes_are_said(make_features, tmp_path):
    features = make_features(tmp_path / "features", 40)
    with pytest.raises(InputError, match=r"factory 'PQ4' cannot be learned from 40 vectors .*Number of training"):
        build(features, tmp_path / "index", factory="PQ4")


def test_an_exact_kind_says_that_training_and_a_target_of_recall_have_no_effect(clustered, tmp_path, said):
    build(clustered, tmp_path / "flat", training=600, target_recall=0.9)
    assert "training = 600 has no effect: Flat learns nothing from a sample" in said
    assert "target_recall = 0.9 has no effect: Flat is exact" in said
    said.clear()
    build(clustered, tmp_path / "lists", factory="IVF16,Flat", training=700)
    build(clustered, tmp_path / "plain")
    assert not any("no effect" in line for line in said)


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


@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8"])
def test_parts_are_the_same_files_whoever_builds_them(factory, clustered, tmp_path):
    settings = IndexSettings(factory=factory, parts=7, training=600, search=None if factory == "Flat" else "nprobe=4")
    made = build_index(clustered, tmp_path / "alone", settings)
    index = build_index(clustered, tmp_path / "by-stage", settings, sharding=Sharding(shards=7))
    assert len(index.files) == 7
    assert index.meta["files"] == made.meta["files"]
    assert index.hash == made.hash


@pytest.mark.parametrize("parts", [2, 7])
def test_an_exact_index_in_parts_ranks_as_one_file_does_with_ties_at_the_cut_too(parts, make_features, tmp_path):
    features = make_features(tmp_path / "features", 400)
    copies = np.load(features.path / "passages.npy")
    copies[:] = copies[np.random.default_rng(0).integers(0, 40, 400)]  # about ten of each
    np.save(features.path / "passages.npy", copies)
    indexes = [build(features, tmp_path / f"in-{count}", factory="Flat", parts=count) for count in (1, parts)]
    ids = [f"q{number}" for number in range(len(features.queries))]
    for k in (5, 150):
        one, other = (index_run(index, ids, features.queries, k) for index in indexes)
        assert one == other
        for number, query in enumerate(features.queries[:5]):  # the highest ids among equal scores, by hand
            scores = features.similarity.prepare_array(copies) @ features.similarity.prepare_array(query)
            copy_of = np.unique(copies, axis=0, return_inverse=True)[1].ravel()
            best = sorted(((scores[copy_of == copy_of[row]].max(), f"p{row}") for row in range(400)), reverse=True)[:k]
            assert {scored.passage_id for scored in one[ids[number]]} == {id_ for _, id_ in best}


@pytest.mark.parametrize("engine", ["faiss", "torch"])
def test_fewer_passages_are_the_first_of_more_with_ties_at_the_cut_and_after_a_removal_too(
    engine, make_features, tmp_path
):
    features = make_features(tmp_path / "features", 400)
    copies = np.load(features.path / "passages.npy")
    copies[:] = copies[np.random.default_rng(0).integers(0, 40, 400)]
    np.save(features.path / "passages.npy", copies)
    build(features, tmp_path / "index", factory="Flat")
    ids = [f"q{number}" for number in range(len(features.queries))]
    for removed in ((), [f"p{row}" for row in range(0, 400, 7)]):
        if removed:
            remove_passages(tmp_path / "index", removed)
        index = open_index(tmp_path / "index", engine=engine)
        whole = index_run(index, ids, features.queries, 400)
        assert all(len(ranking) == 400 - len(removed) for ranking in whole.values())
        for k in (1, 5, 6, 150):
            fewer = index_run(index, ids, features.queries, k)
            assert [row.passage_id for row in fewer[ids[0]]] == [row.passage_id for row in whole[ids[0]][:k]]
            assert fewer == {query: ranking[:k] for query, ranking in whole.items()}


def test_an_approximate_index_in_parts_looks_into_the_same_lists(clustered, tmp_path):
    settings = {"factory": "IVF16,Flat", "training": 600, "search": "nprobe=3"}
    whole, index = (build(clustered, tmp_path / f"in-{parts}", parts=parts, **settings) for parts in (1, 5))
    for queries in (clustered.queries[:1], clustered.queries):
        assert np.array_equal(index.search(queries, 10)[0], whole.search(queries, 10)[0])


def test_a_worker_that_sees_other_vectors_refuses(make_features, tmp_path):
    features = make_features(tmp_path / "features", 50)
    plan = building.plan_of(IndexSettings(parts=2), 50, 16)
    stage = PartShards(
        features.path, "features", "another", False, plan, tmp_path / "learned.faiss", tmp_path, "passages"
    )
    with pytest.raises(ArtifactError, match="this machine finds other vectors there"):
        stage.run(0)
