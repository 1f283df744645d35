"""Export of a graph: PyG's ``HeteroData``, and edge lists as Parquet, CSV or TSV."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.platform.extras import extra
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, release
from gnnretrieval.storage.artifacts import whole_file

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

FOUND, FOUND_BY = ("query", "found", "passage"), ("passage", "found_by", "query")
COLUMNS = ("query_id", "passage_id", "query_row", "passage_row", "rank", "score", "labelled", "retrieved")
_EDGES = 2**18  # edges per block (a row group in Parquet)
_TEXT = {".csv": ",", ".tsv": "\t"}


def shown_queries(store: Graph) -> Rows:
    """Rows of the visible queries of a store or view, ascending."""
    if store.visible is None:
        return np.arange(store.num_queries)
    return np.flatnonzero(store.visible)


def to_hetero_data(store: Graph) -> HeteroData:
    """The graph as PyG's ``HeteroData``, in memory.

    Node types ``"query"`` and ``"passage"`` have ``x`` ``(n, d)`` and ``(m, d)``; edge types
    ``("query", "found", "passage")`` and its reverse have ``edge_index`` ``(2, E)``, by query, then by rank, and
    ``edge_attr`` ``(E, d_e)``. Features are float32. A view gives all nodes and the view's edges; edges that its
    passages do not attend to are of the reverse type alone.
    """
    import torch
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["query"].x = torch.from_numpy(store.query_features.astype(np.float32))
    data["passage"].x = torch.from_numpy(store.passage_features.astype(np.float32))
    shown = shown_queries(store)
    passages = torch.from_numpy(store.neighbors[shown].astype(np.int64).ravel())
    queries = torch.from_numpy(np.repeat(shown, store.k))
    edges = (shown[:, None] * store.stride + np.arange(store.k)).ravel()
    features = torch.from_numpy(store.gather_edge_features(edges))
    attended = slice(None) if store.ignored is None else torch.from_numpy(~store.ignored[edges])
    data[FOUND].edge_index = torch.stack([queries, passages])[:, attended]
    data[FOUND].edge_attr = features[attended]
    data[FOUND_BY].edge_index = torch.stack([passages, queries])
    data[FOUND_BY].edge_attr = features
    return data


class EdgeBlock(NamedTuple):
    """A block of edges, by query, then by rank.

    Attributes:
        queries: ``(E,)`` query rows.
        passages: ``(E,)`` passage rows.
        ranks: ``(E,)`` int32, place among the query's edges, from 1; label edges are last.
        scores: ``(E,)`` float32, the dual-encoder's similarity.
        labelled: ``(E,)`` bool, whether the pair is judged relevant.
        retrieved: ``(E,)`` bool, whether the query retrieved the passage; False if only the label joins them.
    """

    queries: Rows
    passages: Rows
    ranks: NDArray[np.int32]
    scores: NDArray[np.float32]
    labelled: NDArray[np.bool_]
    retrieved: NDArray[np.bool_]


def edge_blocks(store: Graph) -> Iterator[EdgeBlock]:
    """All edges of a store or view, read block by block from its memory maps."""
    labels = store.labels[:, 0] * store.num_passages + store.labels[:, 1]  # sorted
    shown, ranks = shown_queries(store), np.arange(1, store.k + 1, dtype=np.int32)
    for part in blocks(len(shown), max(1, _EDGES // store.k)):
        rows = shown[part]
        queries, passages = np.repeat(rows, store.k), store.neighbors[rows].astype(np.int64).ravel()
        scores, retrieved = np.asarray(store.scores[rows]).ravel(), _retrieved(store, rows).ravel()
        release(store.neighbors, store.scores)
        labelled = np.isin(queries * store.num_passages + passages, labels)
        yield EdgeBlock(queries, passages, np.tile(ranks, len(rows)), scores, labelled, retrieved)


def _retrieved(store: Graph, rows: Rows) -> NDArray[np.bool_]:
    """Whether each edge of some queries ``(b, k)`` was there before label edges replaced some; ``rows`` ascend."""
    neighbors = store.neighbors[rows]
    before = store.retrieved(slice(rows[0], rows[-1] + 1))[0][rows - rows[0]]
    kept = np.ones(neighbors.shape, dtype=bool)
    changed = (neighbors != before).any(1)
    kept[changed] = (neighbors[changed][:, :, None] == before[changed][:, None, :]).any(2)
    return kept


def write_edges(store: Graph, path: str | Path) -> int:
    """Write one line per edge to ``path``: ids and rows of query and passage, rank from 1, score, labelled, retrieved.

    The ending of ``path`` names the format: ``.parquet``, or ``.csv`` and ``.tsv`` with a header, also ``.csv.gz`` and
    ``.tsv.gz``. The file appears only when it is complete. Memory holds the ids and one block of edges.

    Returns:
        The number of edges.

    Raises:
        InputError: ``path`` has another ending or is a directory, or the file cannot be written.
        GnnRetrievalError: ``path`` ends in ``.parquet`` and pyarrow is not installed.
    """
    path = Path(path)
    kind = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if kind not in _TEXT and path.suffix.lower() != ".parquet":
        raise InputError("unknown file type: end the name in .parquet, .csv, .tsv, .csv.gz or .tsv.gz.", path)
    if path.is_dir():
        raise InputError("this is a directory: name a file.", path)
    write = _write_text if kind in _TEXT else _write_parquet
    with store.texts() as texts:
        ids = np.array(texts.query_ids(), dtype=np.object_), np.array(texts.passage_ids(), dtype=np.object_)
    count = len(shown_queries(store)) * store.k
    with whole_file(path) as partial, progress(f"writing {path.name}", count, "edges") as meter:
        write(partial, store, ids, meter.advance)
    return count


def _columns(block: EdgeBlock, ids: tuple[NDArray[Any], NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The block as :data:`COLUMNS`."""
    return ids[0][block.queries], ids[1][block.passages], *block


def _write_parquet(path: Path, store: Graph, ids: tuple[NDArray[Any], NDArray[Any]], advance: Any) -> None:
    pyarrow = extra("pyarrow", "parquet", "Parquet", "or write .tsv")
    parquet = extra("pyarrow.parquet", "parquet", "Parquet")
    string, int64 = pyarrow.string(), pyarrow.int64()
    types = (string, string, int64, int64, pyarrow.int32(), pyarrow.float32(), pyarrow.bool_(), pyarrow.bool_())
    schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))
    with parquet.ParquetWriter(path, schema) as writer:
        for block in edge_blocks(store):
            writer.write_table(pyarrow.table(dict(zip(COLUMNS, _columns(block, ids), strict=True)), schema=schema))
            advance(len(block.queries))


def _write_text(path: Path, store: Graph, ids: tuple[NDArray[Any], NDArray[Any]], advance: Any) -> None:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() in {*_TEXT, ".gz"}]
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("wb"))
        # no name and no time in the gzip header, so that the same graph gives the same bytes
        file: Any = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if ".gz" in suffixes else raw
        delimiter = next(_TEXT[suffix] for suffix in reversed(suffixes) if suffix in _TEXT)
        writer = csv.writer(_Utf8(file), delimiter=delimiter, lineterminator="\n")
        writer.writerow(COLUMNS)
        for block in edge_blocks(store):
            columns = [column.tolist() for column in _columns(block, ids)]
            columns[5] = [f"{score:.9g}" for score in columns[5]]  # 9 digits identify a float32
            columns[6:] = [[int(value) for value in column] for column in columns[6:]]
            writer.writerows(zip(*columns, strict=True))
            advance(len(block.queries))


class _Utf8:
    """A text file for :mod:`csv` over a binary file."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write ``text`` as UTF-8."""
        return int(self._file.write(text.encode("utf-8")))
