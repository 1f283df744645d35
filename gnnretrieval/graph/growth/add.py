"""Adding queries and passages to a graph store. Only what changes is computed; the result equals a complete build.

A new query is joined to its top-k of all passages. A new passage is compared with the old queries, and enters the lists
in which it is among the top-k. BM25 scores depend on the whole corpus: new passages change them on every edge.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.from_objects import passages_of, qrels_of, queries_of
from gnnretrieval.data.records import Qrel
from gnnretrieval.data.text_store import QueryRow, TextStore, passage_rows
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.exact_search import exact_top_k, merge_top_k
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.graph.build import BM25_FOLDER, open_bm25
from gnnretrieval.graph.edges.features import write_cheap_features
from gnnretrieval.graph.edges.labels import arrays_before_labels, with_labels
from gnnretrieval.graph.edges.neighbors import by_source, scores_of
from gnnretrieval.graph.edges.pair_texts import Pairs
from gnnretrieval.graph.edges.pairs import begin_loops, encode_pairs, pairs_begun
from gnnretrieval.graph.edges.sources import Wanted
from gnnretrieval.graph.edges.vector_files import PROBABILITIES, PROJECTION, SCALES, VECTORS, EdgeVectorFiles
from gnnretrieval.graph.growth.additions import Additions, read_additions
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import KIND, TEXTS, Graph, open_graph, passage_side, relevant_pairs
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, release, save_array
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.places import settle
from gnnretrieval.storage.updating import own_copy, record_changes, rewrite, update_artifact

_ROWS = 65536  # rows copied at a time


class _Neighbors(NamedTuple):
    """Neighbours after the addition.

    Attributes:
        rows: ``(n + new, k)`` passage rows.
        scores: ``(n + new, k)``.
        came_from: ``(n + new, k)`` name of the edge before the addition; -1: the edge is new.
        filled: Number of edges of new queries that the dual-encoder filled up.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    came_from: Rows
    filled: int


def add_to_graph(
    path: str | Path,
    additions: Additions,
    *,
    device: str = "cpu",
) -> Graph:
    """Add queries and passages to the graph store at ``path`` in one step; old ids and rows stay.

    Every array then equals that of a graph built with the additions at the end of its dataset. After an interruption
    the same call continues or starts again. Repeating a finished call does nothing.

    Args:
        path: The store.
        additions: New queries and passages (:func:`gnnretrieval.graph.growth.additions.read_additions`).
        device: Where to compute.

    Returns:
        The graph with the additions.

    Raises:
        ArtifactError: Another process writes the store, its edge vectors come from the user's file, or its
            cross-encoder has changed.
        GnnRetrievalError: Passages are added to a graph with edges by BM25.
    """
    settle(Path(path), KIND)
    store = open_graph(path)
    settings = GraphSettings.parse({"label_edges": False, **store.config}, store.path / "meta.json")
    _require_can_grow(store, settings, additions)
    if additions.passages and settings.source is not None and (filled := store.meta["filled"]):
        say(
            f"old queries keep the {filled:,} edges that the dual-encoder filled, even where a new passage is nearer "
            "(build the graph again to compare these)"
        )

    def write(directory: Path) -> dict[str, Any]:
        growth = _Growth(Graph(store.path, store.meta), settings, additions, directory, device)
        figures = growth.write()
        say(f"{growth.changed_passages:,} of {figures['num_passages']:,} passages need new embeddings")
        return figures

    artifact: Artifact = update_artifact(store, KIND, change=additions.identity, write=write)
    return open_graph(artifact.path)


def add_objects(store: Graph, queries: Any, passages: Any, qrels: Any, *, device: str = "cpu", **how: Any) -> Graph:
    """As :func:`add_to_graph`, from Python objects: see :meth:`gnnretrieval.graph.store.Graph.add`."""
    with TemporaryDirectory(prefix="gnnretrieval-") as name:
        files: dict[str, Any] = {}
        place = Path(name)
        if queries is not None:
            files["queries"] = place / QUERIES
            write_queries(files["queries"], ((query, {}) for query in queries_of(queries)))
        if passages is not None:
            files["passages"] = place / CORPUS
            write_passages(files["passages"], ((passage, {}) for passage in passages_of(passages)))
        if qrels is not None:
            files["qrels"] = place / "qrels.tsv"
            judged = qrels_of(qrels)
            rows = (Qrel(query, passage, grade) for query, row in judged.items() for passage, grade in row.items())
            write_qrels(files["qrels"], rows)
        additions = read_additions(store, **files, device=device, **how)
    return store if additions is None else add_to_graph(store.path, additions, device=device)


def _require_can_grow(store: Graph, settings: GraphSettings, additions: Additions) -> None:
    if settings.edge_vectors == "file":
        raise ArtifactError(
            f"{store.path}: its edge vectors come from your file, which has none for new edges. Build the graph again."
        )
    if settings.source is not None and not settings.source.takes_passages and additions.passages:
        raise GnnRetrievalError(
            f"{store.path}: its edges are {settings.source.words}, which new passages change for every query. "
            "Build the graph again."
        )
    if settings.reads_pairs:
        weights = find_checkpoint(str(settings.cross_encoder)).hash
        if weights != store.meta["inputs"]["cross-encoder"]:
            raise ArtifactError(
                f"{store.path}: the weights of {settings.cross_encoder} have changed since the graph was built. "
                "Build the graph again."
            )


class _Growth:
    """Writes the new version of a store, file by file."""

    def __init__(
        self, store: Graph, settings: GraphSettings, additions: Additions, directory: Path, device: str
    ) -> None:
        self.store, self.settings, self.additions = store, settings, additions
        self.directory, self.device = directory, device
        self.changed_passages = 0

    def write(self) -> dict[str, Any]:
        store, settings, directory = self.store, self.settings, self.directory
        n, m = store.num_queries, store.num_passages
        self._grow("query_features.npy", self.additions.query_vectors)
        self._grow("passage_features.npy", self.additions.passage_vectors)
        self._extend_texts()
        bm25 = self._bm25()
        grown = self._neighbors(bm25)
        neighbors = grown.rows.astype(np.uint32)
        indptr, edges = passage_side(neighbors, m + len(self.additions.passages))
        for name, array in (
            ("neighbors.npy", neighbors),
            ("scores.npy", grown.scores),
            ("passage_indptr.npy", indptr),
            ("passage_edges.npy", edges),
        ):
            save_array(rewrite(directory, name), array)
        with TextStore(directory / TEXTS) as texts:
            if settings.reads_pairs:
                self._encode_pairs(texts, grown, neighbors, edges)
            kept = None
            stayed = np.array_equal(grown.came_from[:n], np.arange(n * store.stride).reshape(n, -1))
            if "bm25" in settings.edge_features and stayed and not self.additions.passages:
                kept = store.edge_arrays.cheap[:, :, settings.edge_features.index("bm25")], n
            rewrite(directory, "edge_features.npy")
            write_cheap_features(directory, settings, texts, neighbors, grown.scores, bm25, kept)
        changed = self._changed(grown)
        self.changed_passages = len(changed)
        record_changes(directory, store, changed)
        return {
            "num_passages": m + len(self.additions.passages),
            "num_queries": n + len(self.additions.queries),
            "filled": store.meta["filled"] + grown.filled,
        }

    def _grow(self, name: str, rows: NDArray[np.float16]) -> None:
        """Write the array of features ``name`` with new rows at the end."""
        if not len(rows):
            return
        old = load_array(self.store.path / name)
        with ArrayWriter(rewrite(self.directory, name), (len(old) + len(rows), old.shape[1]), old.dtype) as writer:
            for part in blocks(len(old), _ROWS):
                writer.write(old[part])
                release(old)
            writer.write(rows)

    def _extend_texts(self) -> None:
        own_copy(self.store, self.directory, TEXTS)
        queries, passages = self.additions.queries, self.additions.passages
        n, m = self.store.num_queries, self.store.num_passages
        with TextStore(self.directory / TEXTS, extend=True) as texts:
            texts.add_passages(passage_rows(passages, m))
            texts.add_queries(
                QueryRow(row, query.id, query.text, self.additions.split) for row, query in enumerate(queries, n)
            )
            query_rows = texts.rows_of_queries(list(self.additions.qrels))
            named = {passage for judged in self.additions.qrels.values() for passage in judged}
            passage_row = texts.rows_of_passages(sorted(named))
            texts.add_qrels(
                (query_rows[query], passage_row[passage], relevance)
                for query, judged in self.additions.qrels.items()
                for passage, relevance in judged.items()
            )

    def _bm25(self) -> BM25 | None:
        """The store's BM25 index, built again if passages are added."""
        if self.additions.passages and (self.directory / BM25_FOLDER).is_dir():
            for file in (self.directory / BM25_FOLDER).iterdir():
                file.unlink()
            return open_bm25(self.directory, self.settings, lambda name, make: make())
        return open_bm25(self.directory, self.settings, lambda name, make: None)

    def _neighbors(self, bm25: BM25 | None) -> _Neighbors:
        n, k = self.store.num_queries, self.store.stride
        rows, scores = self.store.retrieved(slice(n))
        came_from = np.arange(n * k).reshape(n, k)
        similarity, passages = self.store.similarity, self.additions.passage_vectors
        if len(passages) and self.settings.source is None and n:
            with progress("new passages", len(passages), "passages") as meter:
                new_rows, new_scores = exact_top_k(
                    self.store.query_features,
                    passages,
                    min(k, len(passages)),
                    similarity,
                    device=self.device,
                    advance=meter.advance,
                )
            new_rows += self.store.num_passages
            rows, scores, order = merge_top_k(np.hstack([rows, new_rows]), np.hstack([scores, new_scores]), k)
            came_from = np.take_along_axis(np.hstack([came_from, np.full(new_rows.shape, -1)]), order, 1)
        queries, filled = self.additions.query_vectors, 0
        if len(queries):
            of_new, scores_of_new, filled = self._neighbors_of_new(queries, bm25)
            rows, scores = np.vstack([rows, of_new]), np.vstack([scores, scores_of_new])
            came_from = np.vstack([came_from, np.full(of_new.shape, -1)])
        neighbors = _Neighbors(rows, scores, came_from, filled)
        return self._with_labels(neighbors) if self.settings.label_edges else neighbors

    def _with_labels(self, retrieved: _Neighbors) -> _Neighbors:
        """Put label edges into the retrieved lists again, and look up each edge's name before the addition."""
        with TextStore(self.directory / TEXTS) as texts:
            labels = relevant_pairs(texts)
        queries = load_array(self.directory / "query_features.npy")
        passages = load_array(self.directory / "passage_features.npy")
        labelled = with_labels(retrieved.rows, retrieved.scores, labels, queries, passages, self.store.similarity)
        for name, array in arrays_before_labels(labelled.changed, retrieved.rows, retrieved.scores).items():
            save_array(rewrite(self.directory, f"{name}.npy"), array)
        k, came_from = self.store.stride, np.full(retrieved.rows.shape, -1)
        for part in blocks(self.store.num_queries, _ROWS // k + 1):
            same = labelled.rows[part][:, :, None] == self.store.neighbors[part][:, None, :]  # (b, k, k)
            before = k * np.arange(part.start, part.stop)[:, None] + same.argmax(2)
            came_from[part] = np.where(same.any(2), before, -1)
        return _Neighbors(labelled.rows, labelled.scores, came_from, retrieved.filled)

    def _neighbors_of_new(
        self, queries: NDArray[np.float16], bm25: BM25 | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
        passages = load_array(self.directory / "passage_features.npy")
        k, similarity = self.store.stride, self.store.similarity
        if self.settings.source is None:
            with progress("new queries", len(passages), "passages") as meter:
                rows, scores = exact_top_k(queries, passages, k, similarity, device=self.device, advance=meter.advance)
            return rows, scores, 0
        with TextStore(self.directory / TEXTS) as texts:
            ids = [query.id for query in self.additions.queries]
            first = self.store.num_queries
            rows_of_new = range(first, first + len(ids))
            wanted = Wanted(rows_of_new, ids, texts, k, bm25, self.additions.run)
            rows, filled = by_source(self.settings, wanted, queries, passages, similarity, self.device)
        return rows, scores_of(rows, queries, passages, similarity), filled

    def _encode_pairs(self, texts: TextStore, grown: _Neighbors, neighbors: NDArray[np.uint32], edges: Rows) -> None:
        """Encode the new pairs by the cross-encoder, and move the vectors of old edges to their new places."""
        arrays, came_from = self.store.edge_arrays, grown.came_from.ravel()
        probabilities = self.store.array(PROBABILITIES).reshape(-1)
        if not pairs_begun(self.directory):
            for name in (VECTORS, SCALES, PROBABILITIES):
                rewrite(self.directory, f"{name}.npy")
            if self.settings.self_loops == "cross-encoder":
                assert arrays.query_loops is not None
                assert arrays.passage_loops is not None
                n, m = texts.counts()[1], texts.counts()[0]
                rewrite(self.directory, "query_loops.npy")
                rewrite(self.directory, "passage_loops.npy")
                begin_loops(self.directory, "query", arrays.query_loops, n)
                begin_loops(self.directory, "passage", arrays.passage_loops, m)

        def carry(files: EdgeVectorFiles) -> None:
            kept = np.flatnonzero(came_from >= 0)
            for part in blocks(len(kept), _ROWS // 8):
                before = came_from[kept[part]]
                files.move(kept[part], arrays.stored(before), probabilities[before])

        path = self.store.path / f"{PROJECTION}.npy"
        projection = np.array(load_array(path)) if path.is_file() else None
        new = edges[came_from[edges] < 0]
        encode_pairs(self.directory, self.settings, Pairs(texts, neighbors), new, self.device, carry, projection)

    def _changed(self, grown: _Neighbors) -> Rows:
        """Sorted rows of the passages with an embedding that may change."""
        n, m = self.store.num_queries, self.store.num_passages
        new_passages = np.arange(m, m + len(self.additions.passages))
        touched = [grown.rows[n:].ravel(), new_passages]
        if self.additions.passages and "bm25" in self.settings.edge_features:
            touched.append(grown.rows.ravel())  # BM25's shares change on every edge
        with TextStore(self.directory / TEXTS) as texts:  # new labels change which edges passages attend to
            judged = texts.rows_of_queries(list(self.additions.qrels)).values()
        touched.append(grown.rows[np.array([row for row in judged if row < n], dtype=np.int64)].ravel())
        # a list that changed touches the passages that it lost, too
        moved = (grown.came_from[:n] != np.arange(n * self.store.stride).reshape(n, -1)).any(axis=1)
        touched += [grown.rows[:n][moved].ravel(), self.store.neighbors[moved].ravel().astype(np.int64)]
        return np.unique(np.concatenate(touched)).astype(np.int64)
