"""The cheapest setting for a recall, and what counts as found."""

import numpy as np
import pytest

from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError
from gnnretrieval.index import build_index
from gnnretrieval.index.measuring import Sample, queries_of, recall
from gnnretrieval.index.settings import IndexSettings


def build(features, out, **settings):
    return build_index(features, out, IndexSettings(**settings))


def test_the_cheapest_setting_that_reaches_the_target_is_taken(clustered, tmp_path, said):
    low = build(clustered, tmp_path / "low", factory="IVF32,Flat", target_recall=0.6)
    high = build(clustered, tmp_path / "high", factory="IVF32,Flat", target_recall=1.0)
    probes = [int(index.meta["search"].removeprefix("nprobe=")) for index in (low, high)]
    assert probes[0] < probes[1]
    assert high.meta["measured"]["recall@10"] > low.meta["measured"]["recall@10"]
    assert any(f"nprobe={probes[0]} reaches recall@10" in line for line in said)


def test_a_target_out_of_reach_is_an_error_and_nothing_is_there(clustered, tmp_path):
    with pytest.raises(InputError, match=r"best search setting, nprobe=\d+, reaches recall@10 0\.\d+, and 0\.999 is"):
        build(clustered, tmp_path / "index", factory="IVF16,PQ4", target_recall=0.999)
    assert not list(tmp_path.iterdir())


def test_without_a_target_what_a_kind_cannot_reach_is_said(clustered, tmp_path, said):
    build(clustered, tmp_path / "index", factory="PQ4")
    assert any("its codes lose the rest" in line for line in said)


DOT = Similarity(normalize=False, scale=1.0)


def test_a_copy_of_the_tenth_is_as_good_as_it_and_what_was_not_found_is_missed():
    vectors = np.array([[3.0], [2.0], [2.0], [1.0]], dtype=np.float32)
    sample = Sample(np.ones((1, 1), dtype=np.float32), np.array([[3.0, 2.0]], dtype=np.float32))
    for found, expected in (([0, 1], 1.0), ([0, 2], 1.0), ([2, 0], 1.0), ([0, 3], 0.5), ([0, -1], 0.5), ([-1, -1], 0)):
        assert recall(np.array([found]), sample, vectors, DOT, 2) == expected


def test_recall_beyond_the_index_is_over_what_there_is():
    vectors = np.array([[3.0], [2.0]], dtype=np.float32)
    sample = Sample(np.ones((1, 1), dtype=np.float32), np.array([[3.0, 2.0]], dtype=np.float32))
    assert recall(np.array([[0, 1, -1, -1]]), sample, vectors, DOT, 4) == 1.0


def test_without_queries_passages_are_asked_and_it_is_said(make_features, tmp_path):
    features = make_features(tmp_path / "features", 50)
    assert queries_of(features, 0)[1] == "of the dataset's queries"
    np.save(features.path / "queries.npy", np.empty((0, 16), dtype=np.float16))
    queries, what = queries_of(features, 0)
    assert what == "passages: no queries are known"
    assert sorted(map(tuple, queries)) == sorted(map(tuple, np.asarray(features.passages, dtype=np.float32)))
