"""The graph store: the query-passage graph as one directory, opened memory-mapped."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.artifacts import Artifact, load_array, open_artifact
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.subgraph import Rows, Subgraph, two_hops

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

KIND = "graph"
TEXTS = "texts.sqlite"


class GraphStore(Artifact):
    """A query-passage graph: ``m`` passages, ``n`` training queries, each query joined to its top-``k`` passages.

    Arrays are memory maps. An edge is named by its place in ``neighbors``: ``query row * k + rank``.
    """

    def _array(self, name: str) -> Any:
        return load_array(self.path / f"{name}.npy")

    @cached_property
    def neighbors(self) -> NDArray[np.uint32]:
        """Passages of each query ``(n, k)`` in retrieval order."""
        array: NDArray[np.uint32] = self._array("neighbors")
        return array

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """Similarity of each edge ``(n, k)``."""
        array: NDArray[np.float32] = self._array("scores")
        return array

    @cached_property
    def edge_features(self) -> NDArray[np.float16]:
        """Edge features ``(n, k, d_e)``."""
        array: NDArray[np.float16] = self._array("edge_features")
        return array

    @cached_property
    def passage_features(self) -> NDArray[np.float16]:
        """``h_p`` ``(m, d)``."""
        array: NDArray[np.float16] = self._array("passage_features")
        return array

    @cached_property
    def query_features(self) -> NDArray[np.float16]:
        """``h_q`` ``(n, d)``."""
        array: NDArray[np.float16] = self._array("query_features")
        return array

    @cached_property
    def indptr(self) -> Rows:
        """Passage-side CSR ``(m + 1,)``: the edges of passage ``p`` are ``edges[indptr[p]:indptr[p + 1]]``."""
        array: Rows = self._array("passage_indptr")
        return array

    @cached_property
    def edges(self) -> Rows:
        """Passage-side CSR ``(n * k,)``: edges by passage, then by query."""
        array: Rows = self._array("passage_edges")
        return array

    @property
    def num_passages(self) -> int:
        """``m``."""
        return len(self.passage_features)

    @property
    def num_queries(self) -> int:
        """``n``."""
        return len(self.neighbors)

    @property
    def k(self) -> int:
        """Passages a query."""
        return int(self.neighbors.shape[1])

    @property
    def edge_dim(self) -> int:
        """Width ``d_e`` of the edge features."""
        return int(self.edge_features.shape[2])

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
        """Settings of the dual-encoder whose features these are."""
        return EncoderSettings.parse(self.meta["encoder"], self.path / "meta.json")

    def texts(self) -> TextStore:
        """Ids, texts and the training queries' judgements."""
        return TextStore(self.path / TEXTS)

    @cached_property
    def labels(self) -> Rows:
        """Relevant ``(query row, passage row)`` pairs ``(L, 2)`` of the training queries, sorted."""
        with self.texts() as texts:
            pairs = [(query, passage) for query, passage, relevance in texts.qrels() if relevance > 0]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def degrees(self) -> Rows:
        """Queries that found each passage ``(m,)``."""
        return np.diff(self.indptr)

    def subgraph(self, passages: Rows, visible: NDArray[np.bool_] | None = None) -> Subgraph:
        """The two-hop neighbourhood of ``passages`` among the ``visible`` queries (:func:`two_hops`)."""
        return two_hops(passages, self.neighbors, self.indptr, self.edges, visible)

    def to_hetero_data(self) -> HeteroData:
        """The graph as PyG's ``HeteroData``, in memory, float32: ``("query", "found", "passage")`` and its reverse."""
        import torch
        from torch_geometric.data import HeteroData

        data = HeteroData()
        data["query"].x = torch.from_numpy(self.query_features.astype(np.float32))
        data["passage"].x = torch.from_numpy(self.passage_features.astype(np.float32))
        found = torch.from_numpy(self.neighbors.astype(np.int64).ravel())
        queries = torch.arange(self.num_queries).repeat_interleave(self.k)
        features = torch.from_numpy(
            self.edge_features.astype(np.float32).reshape(self.num_queries * self.k, self.edge_dim)
        )
        data["query", "found", "passage"].edge_index = torch.stack([queries, found])
        data["query", "found", "passage"].edge_attr = features
        data["passage", "found_by", "query"].edge_index = torch.stack([found, queries])
        data["passage", "found_by", "query"].edge_attr = features
        return data


def open_graph(path: str | Path) -> GraphStore:
    """Open the graph store at ``path``; errors as :func:`gnnretrieval.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, ("encoder", "similarity", "checkpoint_hash", "dataset", "made_from"))
    return GraphStore(artifact.path, artifact.meta)


def passage_side(neighbors: NDArray[np.uint32], num_passages: int) -> tuple[Rows, Rows]:
    """The passage-side CSR of ``neighbors``: offsets ``(m + 1,)`` and edges ``(n * k,)``, by passage, then by query."""
    found = np.asarray(neighbors).ravel()
    edges = np.argsort(found, kind="stable").astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(found, minlength=num_passages))]).astype(np.int64)
    return indptr, edges
