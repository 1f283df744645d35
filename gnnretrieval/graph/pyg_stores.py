"""PyG's ``FeatureStore`` and ``GraphStore`` over a memory-mapped graph, and a sampler for PyG's loaders.

A loader over them reads only the features of a batch's nodes from disk::

    features, edges = pyg_stores(store)
    sampler = TwoHopSampler(store)
    for batch in NodeLoader((features, edges), sampler, input_nodes="passage", batch_size=512):
        batch["query", "found", "passage"].edge_attr = features.edge_attr(batch, FOUND)

:class:`TwoHopSampler` takes all neighbours and needs no compiled package. ``NeighborLoader((features, edges), …)``
samples neighbours and needs pyg-lib or torch-sparse.

Edges of each type are numbered by destination, then in the store's order of sources: PyG's CSC order. The ``e_id`` of
its samplers are these numbers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import FeatureStore, HeteroData
from torch_geometric.data import GraphStore as PyGGraphStore
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.interchange import FOUND, FOUND_BY, shown_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows

EdgeType = tuple[str, str, str]


class _ByDestination:
    """Edges of a store or view in CSC order, named ``query row * stride + rank``."""

    def __init__(self, store: Graph) -> None:
        self.store = store
        self.shown = shown_queries(store)

    @cached_property
    def into_passages(self) -> tuple[Rows, Rows]:
        """Edge names by passage ``(E,)``, and the offsets of each passage's edges ``(m + 1,)``."""
        return self.store.found_by(slice(0, self.store.num_passages))

    @cached_property
    def into_queries(self) -> tuple[Rows, Rows]:
        """Edge names by query ``(E,)``, and the offsets of each query's edges ``(n + 1,)``."""
        names = (self.shown[:, None] * self.store.stride + np.arange(self.store.k)).ravel()
        counts = np.zeros(self.store.num_queries, dtype=np.int64)
        counts[self.shown] = self.store.k
        return names, np.concatenate([[0], np.cumsum(counts)])

    def names(self, edge_type: EdgeType) -> Rows:
        """Names of the edges of a type ``(E,)``."""
        return (self.into_passages if edge_type == FOUND else self.into_queries)[0]


class NodeFeatures(FeatureStore):  # type: ignore[misc]
    """Read-only features, float32: ``x`` of the groups ``"query"`` ``(n, d)`` and ``"passage"`` ``(m, d)``, and
    ``edge_attr`` ``(E, d_e)`` of both edge types. Only the requested rows are read.
    """

    def __init__(self, edges: _ByDestination) -> None:
        super().__init__()
        self.__dict__.update(_store=edges.store, _edges=edges)

    def edge_attr(self, batch: HeteroData, edge_type: EdgeType) -> Tensor:
        """Features ``(E, d_e)`` of the edges of a type in a loader's batch."""
        return self.get_tensor(group_name=edge_type, attr_name="edge_attr", index=batch[edge_type].e_id)  # type: ignore[no-any-return]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        if self._get_tensor_size(attr) is None:
            raise KeyError(f"{attr.group_name!r} has no {attr.attr_name!r}")
        rows = slice(None) if attr.index is None else attr.index
        if isinstance(rows, Tensor):
            rows = rows.cpu().numpy()
        if attr.attr_name == "edge_attr":
            return torch.from_numpy(self._store.gather_edge_features(self._edges.names(attr.group_name)[rows]))
        array = self._store.query_features if attr.group_name == "query" else self._store.passage_features
        return torch.from_numpy(np.array(array[rows], dtype=np.float32))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        if attr.attr_name == "edge_attr" and attr.group_name in (FOUND, FOUND_BY):
            return len(self._edges.names(attr.group_name)), self._store.edge_dim
        rows = {"query": self._store.num_queries, "passage": self._store.num_passages}.get(attr.group_name)
        return None if rows is None or attr.attr_name != "x" else (rows, self._store.dimension)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The node features, which PyG's loaders put into every batch."""
        return [TensorAttr(group_name=group, attr_name="x") for group in ("query", "passage")]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise _read_only()

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise _read_only()


class GraphEdges(PyGGraphStore):  # type: ignore[misc]
    """Read-only edges of types ``("query", "found", "passage")`` and ``("passage", "found_by", "query")``: CSC and COO.

    PyG reads all edges of a type at once, so they must fit into memory: 16 bytes per edge.
    """

    def __init__(self, edges: _ByDestination) -> None:
        super().__init__()
        self._edges = edges

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Both edge types in both layouts."""
        n, m = self._edges.store.num_queries, self._edges.store.num_passages
        return [
            EdgeAttr(edge_type, layout, is_sorted=True, size=size)
            for edge_type, size in ((FOUND, (n, m)), (FOUND_BY, (m, n)))
            for layout in (EdgeLayout.CSC, EdgeLayout.COO)
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.edge_type not in (FOUND, FOUND_BY) or edge_attr.layout is EdgeLayout.CSR:
            return None
        store = self._edges.store
        if edge_attr.edge_type == FOUND:
            names, offsets = self._edges.into_passages
            sources = names // store.stride
        else:
            _, offsets = self._edges.into_queries
            sources = store.neighbors[self._edges.shown].astype(np.int64).ravel()
        if edge_attr.layout is EdgeLayout.COO:
            offsets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return torch.from_numpy(np.array(sources)), torch.from_numpy(np.array(offsets))

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise _read_only()

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise _read_only()


def _read_only() -> GnnRetrievalError:
    return GnnRetrievalError("PyG cannot change a graph store: use gnnretrieval graph add.")


def pyg_stores(store: Graph) -> tuple[NodeFeatures, GraphEdges]:
    """A graph store or view as PyG's remote backend ``(FeatureStore, GraphStore)``."""
    edges = _ByDestination(store)
    return NodeFeatures(edges), GraphEdges(edges)


class TwoHopSampler(BaseSampler):  # type: ignore[misc]
    """Sampler for PyG's ``NodeLoader``: the complete two-hop neighbourhood of some passages, for exact embeddings.

    The requested passages come first in a batch, then the other passages of their queries.
    """

    def __init__(self, store: Graph) -> None:
        self._edges = _ByDestination(store)

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> HeteroSamplerOutput | SamplerOutput:
        """The subgraph of a batch of passages.

        Raises:
            GnnRetrievalError: The nodes are not passages.
        """
        if index.input_type != "passage":
            raise GnnRetrievalError(f"two hops start from 'passage' nodes, not from {index.input_type!r} nodes.")
        store, targets = self._edges.store, index.node.numpy()
        part = store.subgraph(targets)
        # PyG takes the first nodes of a batch for its targets
        passages = np.concatenate([targets, np.setdiff1d(part.sources, targets)])
        order = np.argsort(passages, kind="stable")
        place = order[np.searchsorted(passages, part.sources, sorter=order)]
        counts = np.diff(part.passage_offsets)
        starts = self._edges.into_passages[1][targets] - part.passage_offsets[:-1]
        into_passages = np.arange(len(part.passage_edges)) + np.repeat(starts, counts)
        into_queries = self._edges.into_queries[1][part.queries][:, None] + np.arange(store.k)
        arrays: dict[str, dict[Any, NDArray[np.int64]]] = {
            "node": {"query": part.queries, "passage": passages},
            "row": {FOUND: part.passage_index, FOUND_BY: place[part.query_index]},
            "col": {
                FOUND: np.repeat(np.arange(len(targets)), counts),
                FOUND_BY: np.repeat(np.arange(len(part.queries)), store.k),
            },
            "edge": {FOUND: into_passages, FOUND_BY: into_queries.ravel()},
        }
        tensors = {
            name: {key: torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)) for key, array in group.items()}
            for name, group in arrays.items()
        }
        return HeteroSamplerOutput(**tensors, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index: EdgeSamplerInput, **kwargs: Any) -> HeteroSamplerOutput | SamplerOutput:
        """Not supported: sample the passages instead.

        Raises:
            GnnRetrievalError: Always.
        """
        raise GnnRetrievalError("two hops start from 'passage' nodes, not from edges: use PyG's NodeLoader.")
