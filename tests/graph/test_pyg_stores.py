import importlib.util

import numpy as np
import pytest
import torch
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.nn import GATConv

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.interchange import FOUND, FOUND_BY, to_hetero_data
from gnnretrieval.graph.pyg_stores import TwoHopSampler, pyg_stores


@pytest.fixture(params=["whole", "view", "hard negatives"])
def store(request, tiny_graph):
    """A store, and views of it with other edges."""
    if request.param == "hard negatives":
        return tiny_graph.view(passage_edges="hard-negatives")
    return tiny_graph if request.param == "whole" else tiny_graph.view(k=3, queries=np.arange(0, 60, 2))


def edge_set(sources, destinations, features):
    """Edges with what they carry, in an order of their own."""
    return sorted(zip(sources.tolist(), destinations.tolist(), map(tuple, features.tolist()), strict=True))


def test_they_are_pygs_interfaces_and_say_what_they_hold(store):
    features, edges = pyg_stores(store)
    assert isinstance(features, FeatureStore)
    assert isinstance(edges, GraphStore)
    assert {attr.group_name for attr in features.get_all_tensor_attrs()} == {"query", "passage"}
    assert features.get_tensor_size(group_name="passage", attr_name="x", index=None) == (40, 32)
    assert {attr.edge_type for attr in edges.get_all_edge_attrs()} == {FOUND, FOUND_BY}
    with pytest.raises(KeyError):
        features.get_tensor(group_name="passage", attr_name="y", index=None)
    with pytest.raises(KeyError):
        edges.get_edge_index(edge_type=("passage", "cites", "passage"), layout="csc")


@pytest.mark.parametrize("index", [None, torch.tensor([5, 0, 5]), slice(2, 4), np.array([1])])
def test_rows_of_features_are_the_stores_as_float32(store, index):
    features, _ = pyg_stores(store)
    for group, array in (("query", store.query_features), ("passage", store.passage_features)):
        x = features.get_tensor(group_name=group, attr_name="x", index=index)
        rows = slice(None) if index is None else index
        assert x.dtype == torch.float32
        np.testing.assert_array_equal(x, array[rows].astype(np.float32))


def test_only_the_rows_that_are_asked_for_are_read(tiny_graph):
    asked = []

    class Noting:
        shape = tiny_graph.passage_features.shape

        def __getitem__(self, rows):
            asked.append(rows.tolist())
            return tiny_graph.passage_features[rows]

    view = tiny_graph.view()
    view.__dict__["passage_features"] = Noting()
    features, _ = pyg_stores(view)
    features.get_tensor(group_name="passage", attr_name="x", index=torch.tensor([3, 9]))
    assert asked == [[3, 9]]


@pytest.mark.parametrize("edge_type", [FOUND, FOUND_BY])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_every_layout_has_the_edges_of_hetero_data_with_their_features(store, edge_type, layout):
    expected = to_hetero_data(store)[edge_type]
    features, edges = pyg_stores(store)
    row, col, perm = (part[edge_type] for part in getattr(edges, layout)([edge_type]))
    if layout == "csr":
        row = torch.arange(len(row) - 1).repeat_interleave(row.diff())
    if layout == "csc":
        col = torch.arange(len(col) - 1).repeat_interleave(col.diff())
    order = torch.arange(len(row)) if perm is None else perm
    attributes = features.get_tensor(group_name=edge_type, attr_name="edge_attr", index=order)
    assert edge_set(row, col, attributes) == edge_set(*expected.edge_index, expected.edge_attr)
    assert features.get_tensor_size(group_name=edge_type, attr_name="edge_attr", index=None) == attributes.shape


def test_a_two_hop_batch_of_pygs_loader_gives_what_the_whole_graph_gives(store):
    torch.manual_seed(0)
    to_queries = GATConv((32, 32), 8, heads=2, edge_dim=4, add_self_loops=False)
    to_passages = GATConv((16, 32), 8, edge_dim=4, add_self_loops=False)

    def embed(data):
        x = {group: data[group].x for group in ("query", "passage")}
        by, found = data[FOUND_BY], data[FOUND]
        queries = to_queries((x["passage"], x["query"]), by.edge_index, by.edge_attr)
        return to_passages((queries, x["passage"]), found.edge_index, found.edge_attr)

    whole = embed(to_hetero_data(store))
    features, edges = pyg_stores(store)
    asked = torch.tensor([4, 33, 0, 17, 2, 39, 8])
    batches = 0
    loader = NodeLoader((features, edges), TwoHopSampler(store), input_nodes=("passage", asked), batch_size=3)
    for batch in loader:
        for edge_type in (FOUND, FOUND_BY):
            batch[edge_type].edge_attr = features.edge_attr(batch, edge_type)
        seeds = batch["passage"].n_id[: batch["passage"].batch_size]
        assert seeds.tolist() == asked[batch["passage"].input_id].tolist()
        torch.testing.assert_close(embed(batch)[: len(seeds)], whole[seeds], rtol=1e-5, atol=1e-6)
        assert batch["query"].num_nodes < 60
        batches += 1
    assert batches == 3


def test_neighbor_loader_samples_over_the_stores(store):
    if not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")):
        pytest.skip("NeighborLoader needs pyg-lib or torch-sparse")
    fan_out = {FOUND: [4, 4], FOUND_BY: [4, 4]}
    loader = NeighborLoader(pyg_stores(store), fan_out, input_nodes="passage", batch_size=8)
    seen = torch.cat([batch["passage"].n_id[: batch["passage"].batch_size] for batch in loader])
    assert seen.tolist() == list(range(40))


def test_they_are_read_only_and_two_hops_start_from_passages(tiny_graph):
    features, edges = pyg_stores(tiny_graph)
    with pytest.raises(GnnRetrievalError, match="graph add"):
        features.put_tensor(torch.zeros(40, 32), group_name="passage", attr_name="x", index=None)
    with pytest.raises(GnnRetrievalError, match="graph add"):
        edges.remove_edge_index(edge_type=FOUND, layout="csc")
    loader = NodeLoader((features, edges), TwoHopSampler(tiny_graph), input_nodes=("query", torch.tensor([1])))
    with pytest.raises(GnnRetrievalError, match="two hops start from 'passage'"):
        next(iter(loader))
