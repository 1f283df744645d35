"""PyTorch Geometric's convolutions in the place of graph attention."""

import pytest
import torch
from torch_geometric.nn import GATv2Conv, TransformerConv

from gnnretrieval.nn import GATLayer, Neighbors
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS, graph_layer
from gnnretrieval.nn.pyg_layers import PyGLayer, Shape

WIDTH, EDGE = 6, 3
NEIGHBORS = Neighbors(torch.tensor([0, 2, 1, 1, 3]), torch.tensor([0, 2, 2, 5]))  # of three targets, one without any
HEARD = [[0, 2], [], [1, 1, 3]]


def given(edge_dim: int = EDGE) -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    return {
        "source": torch.randn(4, WIDTH, generator=generator),
        "target": torch.randn(3, WIDTH, generator=generator),
        "edge_features": torch.randn(5, edge_dim, generator=generator).half() if edge_dim else None,
        "loop_feature": torch.randn(edge_dim, generator=generator) if edge_dim else None,
    }


def started(name: str, heads: int = 1, edge_dim: int = EDGE) -> GATLayer | PyGLayer:
    layer = graph_layer(name, Shape(WIDTH, heads, edge_dim, 0.0))
    layer.start_as_identity()
    return layer


def randomised(name: str, heads: int = 1) -> GATLayer | PyGLayer:
    layer = started(name, heads)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return layer


@pytest.mark.parametrize("edge_dim", [0, EDGE])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_at_the_start_a_target_hears_its_neighbours_alike(name, heads, edge_dim):
    its = given(edge_dim)
    source, target = its["source"], its["target"]
    heard = [source[rows] for rows in HEARD]
    if name == "sage":
        expected = [rows.mean(0) if len(rows) else torch.zeros(WIDTH) for rows in heard]
    elif name == "lightgcn":
        expected = [rows.sum(0) / max(len(rows), 1) ** 0.5 for rows in heard]
    else:
        expected = [torch.cat([rows, target[[row]]]).mean(0) for row, rows in enumerate(heard)]
    found = started(name, heads, edge_dim)(source, target, NEIGHBORS, its["edge_features"], its["loop_feature"])
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_weights_of_a_targets_edges_and_loop_sum_to_one(name):
    edges, loops = randomised(name, 2).attention(neighbors=NEIGHBORS, **given())
    assert (edges.shape[0], loops.shape[0]) == (5, 3)
    sums = NEIGHBORS.total(edges) + loops
    alone = torch.tensor(
        [True, name not in ("sage", "lightgcn"), True]
    )  # the second target has no edge, and with these layers no self-loop
    torch.testing.assert_close(sums[alone], torch.ones_like(sums[alone]))


@pytest.mark.parametrize(("name", "conv"), [("gatv2", GATv2Conv), ("transformer", TransformerConv)])
def test_it_is_the_convolution_over_edges_with_standardised_features(name, conv):
    layer, its = randomised(name, 2), given()
    mean, deviation = torch.tensor([1.0, 0.0, -1.0]), torch.tensor([2.0, 0.5, 1.0])
    found = layer(neighbors=NEIGHBORS, edge_moments=(mean, deviation), **its)
    features = torch.cat([(its["edge_features"].float() - mean) / deviation, its["loop_feature"].expand(3, -1)])
    edges = torch.tensor([[0, 2, 1, 1, 3, 4, 5, 6], [0, 0, 2, 2, 2, 0, 1, 2]])
    nodes = (torch.cat([its["source"], its["target"]]), its["target"])
    assert isinstance(layer.conv, conv)
    torch.testing.assert_close(found, layer.conv(nodes, edges, features))
    others, _ = layer.attention(neighbors=NEIGHBORS, **its)
    standardised, _ = layer.attention(neighbors=NEIGHBORS, edge_moments=(mean, deviation), **its)
    assert not torch.allclose(others, standardised)


@pytest.mark.parametrize("name", ["gatv2", "transformer"])
def test_a_layer_with_edge_features_wants_them(name):
    with pytest.raises(ValueError, match="needs edge_features"):
        started(name)(given()["source"], given()["target"], NEIGHBORS)


@pytest.mark.parametrize("name", [name for name in GRAPH_LAYERS if name != "gat"])  # whose projection is in bfloat16
def test_it_computes_in_float32_under_autocast(name):
    layer = randomised(name)
    exact = layer(neighbors=NEIGHBORS, **given())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(neighbors=NEIGHBORS, **given()).equal(exact)
