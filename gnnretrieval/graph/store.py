"""The graph store: the query-passage graph as one directory, opened memory-mapped, with views that copy nothing."""

from __future__ import annotations

import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnretrieval.data.text_store import KeptTextStore, TextStore
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.edges.arrays import EdgeArrays
from gnnretrieval.graph.edges.labels import BEFORE_LABELS
from gnnretrieval.graph.store_checks import check_arrays
from gnnretrieval.graph.subgraph import PassageEdges, Rows, Subgraph, edges_into, two_hops
from gnnretrieval.storage.arrays import blocks, load_array
from gnnretrieval.storage.artifacts import Artifact, open_artifact

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from gnnretrieval.data.dataset import Dataset
    from gnnretrieval.encoders.features import Features
    from gnnretrieval.encoders.text_encoder import TextEncoder
    from gnnretrieval.graph.inspection.report import GraphReport
    from gnnretrieval.graph.settings import GraphSettings
    from gnnretrieval.shards.engines import Sharding

KIND = "graph"
TEXTS = "texts.sqlite"
_LABELS = 65536  # labels a block


class Graph(Artifact):
    """A query-passage graph: ``m`` passages, ``n`` training queries, each query joined to its top-``k`` passages.

    Arrays are memory maps. An edge is named by its place in the stored neighbours: ``query row * stride + rank``, where
    ``stride`` is the ``k`` the store was built with. A :meth:`view` has a smaller ``k`` or fewer queries over the same
    arrays; rows and the names of edges stay.

    Attributes:
        visible: ``(n,)`` False for the queries that a view leaves out; None: all are in.
        hidden: Rows of passages that are not shown: texts and neighbours are given without them. The arrays keep them.
        ignored: ``(n * stride,)`` True for the edges that passages do not attend to (eq. 8); None: they attend to all.
    """

    visible: NDArray[np.bool_] | None = None
    hidden: frozenset[int] = frozenset()
    ignored: NDArray[np.bool_] | None = None
    _k: int | None = None
    _kept_texts: TextStore | None = None

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """As :func:`open_graph`."""
        return open_graph(path)

    @classmethod
    def build(
        cls,
        dataset: Dataset,
        features: Features,
        out: str | Path,
        settings: GraphSettings | None = None,
        *,
        device: str = "cpu",
        sharding: Sharding | None = None,
        overwrite: bool = False,
    ) -> Graph:
        """As :func:`gnnretrieval.graph.build.build_graph`; without settings, by the defaults."""
        from gnnretrieval.graph.build import build_graph
        from gnnretrieval.graph.settings import GraphSettings

        chosen = settings or GraphSettings()
        return build_graph(dataset, features, chosen, out, device=device, sharding=sharding, overwrite=overwrite)

    def add(
        self,
        *,
        queries: Any = None,
        passages: Any = None,
        qrels: Any = None,
        query_vectors: str | Path | None = None,
        passage_vectors: str | Path | None = None,
        encoder: TextEncoder | None = None,
        endpoint: str | None = None,
        device: str = "cpu",
    ) -> Graph:
        """Add new queries (a click log) and passages; only the edges that they change are computed.

        Args:
            queries: As :func:`gnnretrieval.data.from_objects.queries_of`.
            passages: As :func:`gnnretrieval.data.from_objects.passages_of`.
            qrels: As :func:`gnnretrieval.data.from_objects.qrels_of`, of new or old queries and passages.
            query_vectors: A file of their vectors; None: they are encoded.
            passage_vectors: The same of the passages.
            encoder: As :func:`gnnretrieval.encoders.opening.encoder_of`.
            endpoint: As :func:`gnnretrieval.encoders.opening.encoder_of`.
            device: Where to compute.

        Returns:
            The graph with the additions; this object stays what it was.

        Raises:
            GnnRetrievalError: as :func:`gnnretrieval.graph.growth.additions.read_additions`.
        """
        from gnnretrieval.graph.growth.add import add_objects

        vectors: dict[str, Any] = {"query_vectors": query_vectors, "passage_vectors": passage_vectors}
        how: dict[str, Any] = {"encoder": encoder, "endpoint": endpoint, "device": device}
        return add_objects(self, queries, passages, qrels, **vectors, **how)

    def dataset(self, path: str | Path | None = None) -> Dataset:
        """The dataset that the graph was built from, at ``path`` or at its recorded place."""
        from gnnretrieval.data.dataset import Dataset

        provenance = self.meta["dataset"]
        return Dataset.open(path or self.made_from("dataset"), provenance["qrels"], provenance.get("where"))

    def features(self, path: str | Path | None = None) -> Features:
        """The features that the graph was built from, at ``path`` or at their recorded place."""
        from gnnretrieval.encoders.features import open_features

        return open_features(path or self.made_from("features"))

    def inspect(self, data: str | Path | None = None, *, most: int = 5) -> GraphReport:
        """As :func:`gnnretrieval.graph.inspection.inspect.inspect_graph`, to be printed, shown or written as a page."""
        from gnnretrieval.graph.inspection.inspect import inspect_graph

        return inspect_graph(self, data, most=most)

    def __repr__(self) -> str:
        return (
            f"Graph({str(self.path)!r}: {self.num_passages:,} passages, {self.num_queries:,} queries, k = {self.k}, "
            f"{self.meta['encoder']['checkpoint']})"
        )

    def view(
        self,
        *,
        k: int | None = None,
        queries: NDArray[np.bool_] | Rows | None = None,
        split: str | None = None,
        passage_edges: PassageEdges = "all",
        hidden: Rows | None = None,
    ) -> Self:
        """The same store with fewer edges, copying nothing but a mask.

        Args:
            k: Only the first ``k`` passages of each query.
            queries: Only these: ``(n,)`` booleans, or rows.
            split: Only the queries of this split.
            passage_edges: ``hard-negatives``: passages attend to no query that is labelled with them, but to the
                queries that they are hard negatives of. Queries attend to all passages that they are joined to.
            hidden: Rows of passages that are not shown.

        Raises:
            GnnRetrievalError: ``k`` is above the store's, or no query is of the split.
        """
        if k is not None and not 0 < k <= self.k:
            raise GnnRetrievalError(f"{self.path}: each query has {self.k} passages here: give a k from 1 to {self.k}.")
        view = copy.copy(self)
        for name in ("neighbors", "scores", "labels"):  # of this view, not of the new one
            view.__dict__.pop(name, None)
        view._k = k or self._k
        if hidden is not None:
            view.hidden, view._kept_texts = self.hidden.union(hidden.tolist()), None
        if passage_edges == "hard-negatives":
            view.ignored = self.label_edges()
        if queries is not None:
            chosen = np.zeros(self.num_queries, dtype=bool)
            chosen[queries] = True
            view.visible = self.among(chosen)
        if split is not None:
            with self.texts() as texts:
                rows = np.array(texts.query_rows_of_split(split), dtype=np.int64)
            if not len(rows):
                raise GnnRetrievalError(f"{self.path}: no query of this graph is of split {split!r}.")
            return view.view(queries=rows)
        return view

    def among(self, visible: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """``visible`` without the queries that this view leaves out."""
        if self.visible is None or visible is None:
            return visible if self.visible is None else self.visible
        return self.visible & visible

    def array(self, name: str, shape: tuple[int | None, ...] | None = None, dtype: DTypeLike | None = None) -> Any:
        """The stored array called ``name``, memory-mapped; errors as :func:`gnnretrieval.storage.arrays.load_array`."""
        return load_array(self.path / f"{name}.npy", shape, dtype)

    @cached_property
    def _neighbors(self) -> NDArray[np.uint32]:
        array: NDArray[np.uint32] = self.array("neighbors", (self.meta["num_queries"], None), np.uint32)
        return array

    @cached_property
    def neighbors(self) -> NDArray[np.uint32]:
        """Passages of each query ``(n, k)`` in retrieval order."""
        return self._neighbors[:, : self.k]

    def retrieved(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Passages and scores ``(b, k)`` that some queries retrieved, before label edges replaced some of them."""
        neighbors, scores = np.array(self.neighbors[rows], dtype=np.int64), np.array(self.scores[rows])
        if self._before_labels is not None:
            queries, neighbors_before, scores_before = self._before_labels
            start, stop, _ = rows.indices(self.num_queries)
            first, last = np.searchsorted(queries, (start, stop))
            places = queries[first:last] - start
            neighbors[places] = neighbors_before[first:last, : self.k]
            scores[places] = scores_before[first:last, : self.k]
        return neighbors, scores

    @cached_property
    def _before_labels(self) -> list[NDArray[Any]] | None:
        """The arrays of :data:`BEFORE_LABELS`; None if no label edge replaced a retrieved passage."""
        if not (self.path / f"{BEFORE_LABELS[0]}.npy").is_file():
            return None
        return [self.array(name) for name in BEFORE_LABELS]

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """The dual-encoder's similarity on each edge ``(n, k)``."""
        array: NDArray[np.float32] = self.array("scores", self._neighbors.shape, np.float32)
        return array[:, : self.k]

    @cached_property
    def edge_arrays(self) -> EdgeArrays:
        """Features of edges and self-loops."""
        return EdgeArrays.open(self)

    @cached_property
    def passage_features(self) -> NDArray[np.float16]:
        """``h_p`` ``(m, d)``."""
        array: NDArray[np.float16] = self.array("passage_features", (self.num_passages, None), np.float16)
        return array

    @cached_property
    def source_features(self) -> NDArray[np.float16]:
        """Cached passage embeddings that queries attend to in eq. 6 ``(m, d)``: the features as first encoded."""
        return self.passage_features

    @cached_property
    def query_features(self) -> NDArray[np.float16]:
        """``h_q`` ``(n, d)``."""
        shape = (self.num_queries, self.passage_features.shape[1])
        array: NDArray[np.float16] = self.array("query_features", shape, np.float16)
        return array

    @cached_property
    def indptr(self) -> Rows:
        """Passage-side CSR ``(m + 1,)``: the edges of passage ``p`` are ``edges[indptr[p]:indptr[p + 1]]``.

        As stored: a view's queries and ``k`` do not change it. :meth:`found_by` applies them.
        """
        array: Rows = self.array("passage_indptr", (self.num_passages + 1,), np.int64)
        return array

    @cached_property
    def edges(self) -> Rows:
        """Passage-side CSR ``(n * stride,)``: edges by passage, then by query."""
        array: Rows = self.array("passage_edges", (self._neighbors.size,), np.int64)
        return array

    @property
    def num_passages(self) -> int:
        """``m``."""
        return int(self.meta["num_passages"])

    @property
    def num_queries(self) -> int:
        """``n``, including the queries that a view leaves out: rows stay."""
        return len(self._neighbors)

    @property
    def stride(self) -> int:
        """Passages per query in the stored arrays."""
        return int(self._neighbors.shape[1])

    @property
    def k(self) -> int:
        """Passages per query."""
        return self._k or self.stride

    @property
    def edge_dim(self) -> int:
        """Width ``d_e`` of the edge features."""
        return self.edge_arrays.width

    @property
    def edge_names(self) -> list[str]:
        """Names of the edge features, in order. A model trained over one store fits another if these are equal."""
        names = list(self.config["edge_features"])
        if self.meta["edge_vectors"]:
            source = self.meta["inputs"].get("cross-encoder") or self.meta["inputs"].get("edge file", "")
            names.append(f"{self.meta['edge_vectors']} dimensions of {self.config['edge_vectors']} {source[:12]}")
        return names

    @property
    def dimension(self) -> int:
        """Width ``d`` of the node features."""
        return int(self.passage_features.shape[1])

    @property
    def similarity(self) -> Similarity:
        """How the features are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")

    @property
    def encoder_settings(self) -> EncoderSettings:
        """Settings of the dual-encoder that made the features."""
        return EncoderSettings.parse(self.meta["encoder"], self.path / "meta.json")

    def texts(self) -> TextStore:
        """Ids, texts and the training queries' judgements."""
        return self._kept_texts or TextStore(self.path / TEXTS, hidden=self.hidden)

    def keep_open(self, in_memory: bool = False) -> None:
        """Open every file now: later its path may lead to the file of another version.

        Args:
            in_memory: Read the arrays instead of mapping them, so that nobody can change or cut them.
        """
        self._kept_texts = KeptTextStore(self.path / TEXTS, hidden=self.hidden)
        for name in ("_neighbors", "scores", "passage_features", "query_features", "indptr", "edges"):
            array = getattr(self, name)
            if in_memory and isinstance(array, np.memmap):
                self.__dict__[name] = np.array(array)
        before_labels, edge_arrays = self._before_labels, self.edge_arrays  # opened here
        if in_memory:
            self.__dict__["_before_labels"] = before_labels and [np.array(array) for array in before_labels]
            self.__dict__["edge_arrays"] = EdgeArrays._make(a if a is None else np.array(a) for a in edge_arrays)

    def close(self) -> None:
        """Close the texts, which :meth:`keep_open` opened; arrays close by themselves."""
        if self._kept_texts is not None:
            self._kept_texts.close()

    @cached_property
    def labels(self) -> Rows:
        """Relevant ``(query row, passage row)`` pairs ``(L, 2)`` of the queries, sorted."""
        with self.texts() as texts:
            labels = relevant_pairs(texts)
        return labels if self.visible is None else labels[self.visible[labels[:, 0]]]

    def gather_edge_features(self, edges: Rows) -> NDArray[np.float32]:
        """Features of some edges ``(E, d_e)``."""
        return self.edge_arrays.gather(edges)

    def degrees(self) -> Rows:
        """Number of queries joined to each passage ``(m,)``."""
        if self.ignored is not None:
            return np.diff(self.found_by(slice(0, self.num_passages))[1])
        if self.visible is None and self.k == self.stride:
            return np.diff(self.indptr)
        shown = self.neighbors if self.visible is None else self.neighbors[self.visible]
        return np.bincount(shown.ravel(), minlength=self.num_passages)

    def found_by(self, passages: Rows | slice, visible: NDArray[np.bool_] | None = None) -> tuple[Rows, Rows]:
        """The edges into some passages ``(E,)``, and the offsets of each passage's edges ``(T + 1,)``.

        Args:
            passages: Rows, or a slice of them.
            visible: ``(n,)`` False for queries that are masked out of the graph; None: all of the view are in it.
        """
        return edges_into(passages, self.indptr, self.edges, self.among(visible), self.stride, self.k, self.ignored)

    def subgraph(
        self,
        passages: Rows,
        visible: NDArray[np.bool_] | None = None,
        *,
        dropped: NDArray[np.bool_] | None = None,
        sample: tuple[int, np.random.Generator] | None = None,
    ) -> Subgraph:
        """The two-hop neighbourhood of ``passages`` among the ``visible`` queries (:func:`two_hops`)."""
        side = (self.indptr, self.edges, self.among(visible), self.stride)
        return two_hops(passages, self.neighbors, *side, dropped=dropped, ignored=self.ignored, sample=sample)

    def with_features(self, passages: NDArray[np.floating], queries: NDArray[np.floating]) -> Self:
        """The same store with node features recomputed by a trained dual-encoder, for eq. 7-10.

        Eq. 6 keeps the cached passage embeddings that the graph was built with (Algorithm 1, line 8):
        :attr:`source_features`.

        Args:
            passages: ``(m, d)``, float16 or float32.
            queries: ``(n, d)``, of the graph's queries, in order.
        """
        view = copy.copy(self)
        view.__dict__.update(passage_features=passages, query_features=queries, source_features=self.source_features)
        return view

    def label_edges(self, labels: Rows | None = None) -> NDArray[np.bool_]:
        """``(n * stride,)`` True for the edges between a query and a passage that is relevant to it.

        Args:
            labels: ``(L, 2)`` relevant pairs (query row, passage row); None: :attr:`labels`.
        """
        labels = self.labels if labels is None else labels
        labelled = np.zeros(self._neighbors.shape, dtype=bool)
        for part in blocks(len(labels), _LABELS):
            queries, passages = labels[part].T
            hits = self._neighbors[queries] == passages[:, None].astype(np.uint32)  # (labels, stride)
            number, rank = np.nonzero(hits)
            labelled[queries[number], rank] = True
        return labelled.ravel()

    def to_hetero_data(self) -> HeteroData:
        """The graph as PyG's ``HeteroData`` (:func:`gnnretrieval.graph.interchange.to_hetero_data`)."""
        from gnnretrieval.graph.interchange import to_hetero_data

        return to_hetero_data(self)


def open_graph(path: str | Path) -> Graph:
    """Open the graph store at ``path``. Every edge's rows are checked, which takes a second for 100 million edges.

    Raises:
        ArtifactError: as :func:`gnnretrieval.storage.artifacts.open_artifact`, or its arrays are damaged.
    """
    records = ("encoder", "similarity", "checkpoint_hash", "dataset", "made_from", "num_passages", "num_queries")
    artifact = open_artifact(path, KIND, records)
    store = Graph(artifact.path, artifact.meta)
    check_arrays(store)
    return store


def relevant_pairs(texts: TextStore) -> Rows:
    """Relevant ``(query row, passage row)`` pairs ``(L, 2)``, sorted."""
    pairs = [(query, passage) for query, passage, relevance in texts.qrels() if relevance > 0]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def passage_side(neighbors: NDArray[np.uint32], num_passages: int) -> tuple[Rows, Rows]:
    """The passage-side CSR of ``neighbors``: offsets ``(m + 1,)`` and edges ``(n * k,)``, by passage, then by query."""
    passages = np.asarray(neighbors).ravel()
    edges = np.argsort(passages, kind="stable").astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(passages, minlength=num_passages))]).astype(np.int64)
    return indptr, edges
