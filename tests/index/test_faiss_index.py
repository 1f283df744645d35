"""Indexes of every kind, against exact search."""

import json

import numpy as np
import pytest

from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index, open_index
from gnnretrieval.index.settings import IndexSettings

KINDS = ("Flat", "SQ8", "PQ8", "IVF16,Flat", "IVF16,SQ8", "IVF16,PQ8", "HNSW8", "PCA12,IVF16,SQ8", "IVF16,PQ8,RFlat")


def build(features, out, **settings):
    return build_index(features, out, IndexSettings(**settings))


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


@pytest.mark.parametrize(("factory", "settings"), [("Flat", {}), ("SQ8", {}), ("IVF16,Flat", {"target_recall": 0.9})])
def test_the_report_has_the_figures_in_the_order_of_the_metadata(factory, settings, clustered, tmp_path):
    index = build(clustered, tmp_path / "index", factory=factory, **settings)
    report = index.inspect()
    assert (report.passages, report.removed, report.sentences, report.exact) == (1200, 0, None, factory == "Flat")
    assert report.measured.recall_at_10 == index.meta["measured"]["recall@10"]
    printed = report.as_json()
    assert json.dumps(printed["measured"]) == json.dumps(index.meta["measured"])
    names = "passages removed dimension bytes factory exact similarity search shards measured"
    assert list(printed) == names.split()
    assert report.to_text().startswith(f"{tmp_path / 'index'}: 1,200 passages, ")
    index.meta["measured"] = {**index.meta["measured"], "newer": 1, "updates_since": 2}
    assert index.inspect().as_json()["measured"]["newer"] == 1
    assert "before the last 2 updates" in index.inspect().to_text()
    index.meta["measured"] = {}
    assert index.inspect().as_json()["measured"] == {}
    index.meta["measured"] = {"recall@10": "high"}
    with pytest.raises(ArtifactError, match=r"meta.json: measured.recall@10 is missing or wrong"):
        index.inspect()
