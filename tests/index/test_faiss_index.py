"""Indexes of every kind, against exact search."""

import json

import numpy as np
import pytest

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index, open_index
from gnnretrieval.index.settings import IndexSettings

KINDS = ("Flat", "SQ8", "PQ8", "IVF16,Flat", "IVF16,SQ8", "IVF16,PQ8", "HNSW8", "PCA12,IVF16,SQ8", "IVF16,PQ8,RFlat")


def build(features, out, say=lambda line: None, **settings):
    return build_index(features, out, IndexSettings(**settings), say=say)


def exact(features, k):
    return exact_top_k(features.queries, features.passages, k, features.similarity)


@pytest.mark.parametrize("factory", KINDS)
def test_recall_and_times_are_measured_on_queries_that_nothing_was_chosen_by(factory, clustered, tmp_path):
    index = build(clustered, tmp_path / "index", factory=factory)
    measured = open_index(tmp_path / "index").meta["measured"]
    assert measured["sample"] == "30 of the dataset's queries"
    assert 0.5 < measured["recall@10"] <= 1
    assert 0.4 < measured["recall@100"] <= 1
    assert measured["milliseconds"] > 0
    assert measured["queries_per_second"] > 0
    if "P" not in factory or "RFlat" in factory:
        assert measured["recall@10"] > 0.9
    asked = np.random.default_rng(0).permutation(60)[30:]  # the half that is reported on
    found, _ = index.search(clustered.queries[asked], 10)
    true = exact(clustered, 10)[0][asked]
    share = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found.tolist(), true.tolist(), strict=True)])
    assert measured["recall@10"] == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize("factory", KINDS)
def test_opened_from_disk_it_finds_what_it_found(factory, clustered, tmp_path):
    built = build(clustered, tmp_path / "index", factory=factory)
    opened = open_index(tmp_path / "index")
    for one, other in zip(built.search(clustered.queries, 5), opened.search(clustered.queries, 5), strict=True):
        assert np.array_equal(one, other)


def test_inner_product_and_cosine_are_the_encoders(make_features, tmp_path):
    for normalize in (True, False):
        features = make_features(tmp_path / f"features-{normalize}", 300, normalize=normalize)
        index = build(features, tmp_path / f"index-{normalize}")
        rows, scores = index.search(features.queries, 5)
        true, values = exact(features, 5)
        assert np.array_equal(rows, true)
        np.testing.assert_allclose(scores, values, rtol=1e-5)


def test_the_cheapest_setting_that_reaches_the_target_is_taken(clustered, tmp_path):
    lines: list[str] = []
    low = build(clustered, tmp_path / "low", lines.append, factory="IVF32,Flat", target_recall=0.6)
    high = build(clustered, tmp_path / "high", lines.append, factory="IVF32,Flat", target_recall=1.0)
    probes = [int(index.meta["search"].removeprefix("nprobe=")) for index in (low, high)]
    assert probes[0] < probes[1]
    assert high.meta["measured"]["recall@10"] > low.meta["measured"]["recall@10"]
    assert any(f"nprobe={probes[0]} reaches recall@10" in line for line in lines)


def test_a_target_out_of_reach_is_an_error_and_nothing_is_there(clustered, tmp_path):
    with pytest.raises(InputError, match=r"best search setting, nprobe=\d+, reaches recall@10 0\.\d+, and 0\.999 is"):
        build(clustered, tmp_path / "index", factory="IVF16,PQ4", target_recall=0.999)
    assert not list(tmp_path.iterdir())


def test_without_a_target_what_a_kind_cannot_reach_is_said(clustered, tmp_path):
    lines: list[str] = []
    build(clustered, tmp_path / "index", lines.append, factory="PQ4")
    assert any("its codes lose the rest" in line for line in lines)


def test_a_setting_that_is_given_is_kept(clustered, tmp_path):
    index = build(clustered, tmp_path / "index", factory="IVF16,Flat", search="nprobe=3")
    assert index.meta["search"] == "nprobe=3"
    index.search(clustered.queries, 1)
    assert open_index(tmp_path / "index").engine.index.nprobe == 3


def test_a_target_and_a_setting_together_are_refused():
    with pytest.raises(InputError, match="give one of them"):
        IndexSettings.parse({"search": "nprobe=3", "target_recall": 0.9})


def test_built_again_by_one_core_it_is_the_same_bytes(clustered, tmp_path):
    for name in ("one", "other"):
        build(clustered, tmp_path / name, factory="IVF16,PQ8")
    assert (tmp_path / "one/index.faiss").read_bytes() == (tmp_path / "other/index.faiss").read_bytes()
    assert build(clustered, tmp_path / "seeded", factory="IVF16,PQ8", seed=1).hash != open_index(tmp_path / "one").hash


@pytest.mark.parametrize("factory", KINDS)
def test_k_above_the_index_finds_every_passage_once(factory, clustered, tmp_path):
    index = build(clustered, tmp_path / "index", factory=factory)
    rows, scores = index.search(clustered.queries[:2], 1300)
    assert rows.shape == scores.shape == (2, 1300)
    for line in rows.tolist():
        found = [row for row in line if row >= 0]
        assert sorted(found) == sorted(set(found))
        assert len(found) == 1200 or ("HNSW" in factory and len(found) > 1190)


def test_more_lists_than_vectors_are_refused(clustered, tmp_path):
    with pytest.raises(InputError, match=r"has 4,096 lists, and there are 1,200 vectors: give IVF35 or fewer"):
        build(clustered, tmp_path / "index", factory="IVF4096,Flat")


def test_too_few_vectors_for_codes_are_said(make_features, tmp_path):
    features = make_features(tmp_path / "features", 40)
    with pytest.raises(InputError, match=r"factory 'PQ4' cannot be learned from 40 vectors .*Number of training"):
        build(features, tmp_path / "index", factory="PQ4")


@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8", "HNSW8"])
def test_an_index_in_shards_finds_what_one_in_one_piece_finds(factory, make_features, tmp_path, monkeypatch):
    import gnnretrieval.index.building as building

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
    import gnnretrieval.index.building as building

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


def test_exact_search_by_torch_needs_the_vectors_as_they_were(make_features, tmp_path):
    features = make_features(tmp_path / "features", 300)
    build(features, tmp_path / "index", factory="SQ8")
    rows, scores = open_index(tmp_path / "index", engine="torch").search(features.queries, 10)
    true, values = exact(features, 10)
    assert np.array_equal(rows, true)
    np.testing.assert_allclose(scores, values, rtol=1e-6)
    meta = json.loads((features.path / "meta.json").read_text())
    (features.path / "meta.json").write_text(json.dumps(meta | {"hash": "other"}))
    with pytest.raises(ArtifactError, match="has changed since it was indexed"):
        open_index(tmp_path / "index", engine="torch").search(features.queries, 10)


def test_an_exact_index_is_configured_as_before_there_were_other_kinds(clustered, tmp_path):
    index = build(clustered, tmp_path / "index")
    assert index.config == {"factory": "Flat", "metric": "inner product"}
    assert index.is_exact
