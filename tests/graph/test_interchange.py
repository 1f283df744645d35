import csv
import gzip
import subprocess
import sys

import numpy as np
import pytest
import torch

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.graph import interchange
from gnnretrieval.graph.interchange import COLUMNS, to_hetero_data, write_edges


def expected_rows(store, queries=None):
    """Every edge as :data:`COLUMNS`, straight from the store's arrays."""
    with store.texts() as texts:
        query_ids, passage_ids = texts.query_ids(), texts.passage_ids()
    labels = {tuple(pair) for pair in store.labels.tolist()}
    before = store.retrieved(slice(store.num_queries))[0].tolist()
    return [
        (query_ids[q], passage_ids[p], q, p, rank, float(store.scores[q, rank - 1]), (q, p) in labels, p in before[q])
        for q in (range(store.num_queries) if queries is None else queries)
        for rank, p in enumerate(store.neighbors[q].tolist(), 1)
    ]


def text_rows(lines, delimiter):
    header, *rows = csv.reader(lines, delimiter=delimiter)
    assert tuple(header) == COLUMNS
    return [
        (query, passage, int(q), int(p), int(rank), float(np.float32(score)), label == "1", retrieved == "1")
        for query, passage, q, p, rank, score, label, retrieved in rows
    ]


def parquet_rows(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(path)
    assert tuple(table.column_names) == COLUMNS
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(interchange, "_EDGES", 35)  # 7 queries a block: 60 are not a multiple


def test_parquet_has_one_row_an_edge_with_ids_rows_rank_score_and_label(tiny_graph, tmp_path, small_blocks):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert write_edges(tiny_graph, tmp_path / "edges.parquet") == 300
    rows = parquet_rows(tmp_path / "edges.parquet")
    assert rows == expected_rows(tiny_graph)
    assert 0 < sum(row[-2] for row in rows) < 300
    assert 0 < sum(not row[-1] for row in rows) == sum(row[-2] and not row[-1] for row in rows) < 60
    assert parquet.ParquetFile(tmp_path / "edges.parquet").num_row_groups == 9
    assert [path.name for path in tmp_path.iterdir()] == ["edges.parquet"]


@pytest.mark.parametrize(("name", "delimiter"), [("e.csv", ","), ("e.tsv", "\t"), ("a.b.TSV.GZ", "\t")])
def test_text_has_the_same_rows_to_the_last_bit_of_the_score(tiny_graph, tmp_path, small_blocks, name, delimiter):
    path = tmp_path / name
    write_edges(tiny_graph, path)
    raw = gzip.decompress(path.read_bytes()) if name.endswith("GZ") else path.read_bytes()
    assert text_rows(raw.decode().splitlines(), delimiter) == expected_rows(tiny_graph)
    again = tmp_path / f"again-{name}"
    write_edges(tiny_graph, again)
    assert again.read_bytes() == path.read_bytes()


def test_of_a_view_only_its_edges_are_written(tiny_graph, tmp_path):
    view = tiny_graph.view(k=2, queries=np.array([3, 50, 4]))
    assert write_edges(view, tmp_path / "edges.tsv") == 6
    lines = (tmp_path / "edges.tsv").read_text().splitlines()
    assert text_rows(lines, "\t") == expected_rows(view, [3, 4, 50])


def test_a_name_with_another_ending_and_a_directory_are_refused(tiny_graph, tmp_path):
    with pytest.raises(InputError, match=r"edges.pt: unknown file type"):
        write_edges(tiny_graph, tmp_path / "edges.pt")
    (tmp_path / "made.csv").mkdir()
    with pytest.raises(InputError, match="this is a directory"):
        write_edges(tiny_graph, tmp_path / "made.csv")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="part of this path is a file"):
        write_edges(tiny_graph, tmp_path / "file" / "edges.csv")


def test_interrupted_it_leaves_the_old_file_and_nothing_beside_it(tiny_graph, tmp_path, monkeypatch):
    path = tmp_path / "edges.tsv"
    path.write_text("old")
    blocks = interchange.edge_blocks

    def broken(store):
        yield next(blocks(store))
        raise KeyboardInterrupt

    monkeypatch.setattr(interchange, "edge_blocks", broken)
    with pytest.raises(KeyboardInterrupt):
        write_edges(tiny_graph, path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("edges.tsv", "old")]


def test_without_pyarrow_parquet_says_what_to_install(tiny_graph, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GnnRetrievalError, match=r"pip install 'gnnretrieval\[parquet\]'"):
        write_edges(tiny_graph, tmp_path / "edges.parquet")
    assert not list(tmp_path.iterdir())


def test_hetero_data_of_a_view_has_all_nodes_and_its_own_edges_with_their_features(tiny_graph):
    view = tiny_graph.view(k=2, queries=np.array([7, 1]))
    data = to_hetero_data(view)
    assert (data["query"].num_nodes, data["passage"].num_nodes) == (60, 40)
    found = data["query", "found", "passage"]
    assert found.edge_index[0].tolist() == [1, 1, 7, 7]
    assert found.edge_index[1].tolist() == tiny_graph.neighbors[[1, 7], :2].ravel().tolist()
    np.testing.assert_array_equal(found.edge_attr, tiny_graph.gather_edge_features(np.array([5, 6, 35, 36])))
    assert torch.equal(data["passage", "found_by", "query"].edge_index, found.edge_index.flip(0))


def test_the_module_loads_without_torch_and_pyarrow():
    code = "import sys, gnnretrieval.graph.interchange; print({'pyarrow', 'torch_geometric'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
