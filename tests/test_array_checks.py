import json
import shutil
import time

import numpy as np
import pytest

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.store import Graph, open_graph
from gnnretrieval.storage import array_checks
from gnnretrieval.storage.array_checks import require_finite, require_offsets, require_rows
from gnnretrieval.storage.arrays import load_array


@pytest.fixture
def graph(tiny_graph, tmp_path):
    """A copy of the tiny graph that a test may spoil, as its directory."""
    return shutil.copytree(tiny_graph.path, tmp_path / "graph")


def last(value):
    def change(array):
        array.reshape(-1)[-1] = value
        return array

    return change


def falling(array):
    array[5] = array[-1]
    return array


CRAFTED = {
    "neighbors": (last(40), "it has row 40, and there are 40"),
    "passage_edges": (last(10**9), "it has row 1000000000"),
    "passage_indptr": (last(10**12), "its offsets go from 0 to 1000000000000"),
    "passage_indptr falls": (falling, "its offsets fall after place 5"),
    "passage_edges below 0": (last(-1), "it has row -1"),
    "passage_indptr below 0": (lambda array: array - 1, "its offsets go from -1"),
}


@pytest.mark.parametrize(("name", "crafted"), CRAFTED.items(), ids=CRAFTED)
def test_a_graph_whose_arrays_name_what_is_not_there_is_not_opened(name, crafted, graph, monkeypatch):
    monkeypatch.setattr(array_checks, "_BLOCK", 7)
    path = graph / f"{name.split()[0]}.npy"
    np.save(path, crafted[0](np.load(path)))
    with pytest.raises(ArtifactError, match=crafted[1]) as refused:
        open_graph(graph)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "value", "says"),
    [
        ("num_passages", 10**12, "wanted"),
        ("num_passages", 10**18, "num_passages: input should be less than"),
        ("num_passages", -1, "num_passages: input should be greater"),
        ("num_passages", "40", "num_passages: input should be a valid integer"),
        ("num_queries", True, "num_queries: input should be a valid integer"),
        ("num_queries", None, "num_queries: input should be a valid integer"),
        ("made_from", ["dataset"], "made_from: input should be a valid dictionary"),
        ("files", {"../../secret": "0"}, "files: its file '../../secret' lies outside"),
        ("files", {"/etc/passwd": "0"}, "lies outside"),
        ("encoder", 5, "encoder: input should be a valid dictionary"),
    ],
)
def test_an_entry_of_meta_json_that_cannot_be_is_named(entry, value, says, graph):
    meta = json.loads((graph / "meta.json").read_text())
    (graph / "meta.json").write_text(json.dumps({**meta, entry: value}))
    with pytest.raises(ArtifactError, match=says):
        open_graph(graph)


def test_meta_json_nested_deeply_is_a_sentence(graph):
    (graph / "meta.json").write_text("[" * 50_000)
    with pytest.raises(ArtifactError, match="nested too deeply"):
        open_graph(graph)


def test_rows_and_offsets_that_fit_are_let_through(tmp_path):
    require_rows(np.array([[0, 3], [1, 2]]), 4, tmp_path)
    require_rows(np.empty((0, 3), dtype=np.uint32), 0, tmp_path)
    require_offsets(np.array([0, 0, 2, 2]), 2, tmp_path)
    require_finite(np.ones((2, 2), dtype=np.float16), tmp_path)


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 3], [0, 2, 1, 2]])
def test_offsets_that_do_not_fit_are_refused(offsets, tmp_path):
    with pytest.raises(ArtifactError, match="offsets"):
        require_offsets(np.array(offsets, dtype=np.int64), 2, tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_named_by_its_row(value, tmp_path):
    vectors = np.zeros((3, 2), dtype=np.float16)
    vectors[1, 1] = value
    with pytest.raises(GnnRetrievalError, match="row 11 holds a number that is not finite"):
        require_finite(vectors, tmp_path, 10)


def test_arrays_of_a_large_graph_are_checked_in_a_moment(tmp_path):
    count = 10**6
    np.save(tmp_path / "rows.npy", np.arange(count, dtype=np.uint32))
    np.save(tmp_path / "offsets.npy", np.arange(count, dtype=np.int64))
    begun = time.process_time()
    require_rows(load_array(tmp_path / "rows.npy"), count, tmp_path)
    require_offsets(load_array(tmp_path / "offsets.npy"), count - 1, tmp_path)
    assert time.process_time() - begun < 0.5


def test_a_graph_that_is_sound_is_opened(graph):
    assert isinstance(open_graph(graph), Graph)
