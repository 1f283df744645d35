import pytest
import torch
from torch_geometric.nn import GATConv

from gnnretrieval.nn import GATLayer, Neighbors, edge_fold

IN, OUT, EDGE = 8, 6, 3


def graph(num_sources=7, degrees=(3, 0, 5, 1, 2), seed=0) -> Neighbors:
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *torch.tensor(degrees).cumsum(0)])
    return Neighbors(torch.randint(num_sources, (int(offsets[-1]),), generator=generator), offsets)


def regular_graph(num_sources=7, targets=5, width=3, seed=0) -> Neighbors:
    generator = torch.Generator().manual_seed(seed)
    return Neighbors.regular(torch.randint(num_sources, (targets, width), generator=generator))


def inputs(neighbors: Neighbors, num_sources=7, edged=True, seed=1) -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    return {
        "source": random(num_sources, IN),
        "target": random(neighbors.num_targets, IN),
        "edge_features": random(len(neighbors.sources), EDGE) if edged else None,
        "loop_feature": random(EDGE) if edged else None,
    }


def layer_and_conv(heads: int, edged: bool) -> tuple[GATLayer, GATConv]:
    torch.manual_seed(2)
    conv = GATConv((IN, IN), OUT, heads=heads, edge_dim=EDGE if edged else None, add_self_loops=False, bias=False)
    layer = GATLayer(IN, OUT, heads, EDGE if edged else None)
    layer.load_state_dict(conv.state_dict())
    return layer, conv


def by_conv(conv: GATConv, neighbors: Neighbors, source, target, edge_features, loop_feature) -> torch.Tensor:
    """GATConv over sources and targets together, with a loop from each target's copy to the target."""
    rows = torch.arange(len(target))
    edge_index = torch.stack(
        [torch.cat([neighbors.sources, rows + len(source)]), torch.cat([neighbors.targets(), rows])]
    )
    features = None
    if edge_features is not None:
        features = torch.cat([edge_features, loop_feature.expand(len(target), -1)])
    return conv((torch.cat([source, target]), target), edge_index, features)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("edged", [False, True])
@pytest.mark.parametrize("make_graph", [graph, regular_graph])
def test_output_and_every_gradient_equal_those_of_gatconv(heads, edged, make_graph):
    neighbors = make_graph()
    layer, conv = layer_and_conv(heads, edged)
    ours, theirs = inputs(neighbors, edged=edged), inputs(neighbors, edged=edged)
    out, expected = layer(neighbors=neighbors, **ours), by_conv(conv, neighbors, **theirs)
    assert out.shape == (neighbors.num_targets, heads * OUT)
    torch.testing.assert_close(out, expected)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, value in ours.items():
        if value is not None:
            torch.testing.assert_close(value.grad, theirs[name].grad, msg=lambda text, name=name: f"{name}: {text}")
    others = dict(conv.named_parameters())
    assert {name for name, _ in layer.named_parameters()} == set(others)
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.grad, others[name].grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("edged", [False, True])
def test_state_dict_loads_in_gatconv_and_back(edged):
    layer = GATLayer(IN, OUT, 2, EDGE if edged else None)
    conv = GATConv((IN, IN), OUT, heads=2, edge_dim=EDGE if edged else None, add_self_loops=False, bias=False)
    conv.load_state_dict(layer.state_dict())
    neighbors = graph()
    values = inputs(neighbors, edged=edged)
    torch.testing.assert_close(layer(neighbors=neighbors, **values), by_conv(conv, neighbors, **values))
    again = GATLayer(IN, OUT, 2, EDGE if edged else None)
    again.load_state_dict(conv.state_dict())
    torch.testing.assert_close(again(neighbors=neighbors, **values), layer(neighbors=neighbors, **values))


def test_a_loop_feature_for_each_target_equals_gatconv_too():
    neighbors = graph()
    layer, conv = layer_and_conv(2, True)
    values = inputs(neighbors)
    values["loop_feature"] = torch.randn(neighbors.num_targets, EDGE, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(layer(neighbors=neighbors, **values), by_conv(conv, neighbors, **values))


def test_a_target_without_edges_hears_itself_alone():
    neighbors = graph(degrees=(2, 0, 1))
    layer, _ = layer_and_conv(1, True)
    values = inputs(neighbors)
    out = layer(neighbors=neighbors, **values)
    torch.testing.assert_close(out[1], layer.lin_src(values["target"][1]))
    _, loops = layer.attention(neighbors=neighbors, **values)
    torch.testing.assert_close(loops[1], torch.ones(1))


def test_a_graph_without_any_edge_passes_targets_through_and_has_gradients():
    neighbors = graph(degrees=(0, 0))
    layer, _ = layer_and_conv(2, True)
    values = inputs(neighbors)
    out = layer(neighbors=neighbors, **values)
    torch.testing.assert_close(out, layer.lin_src(values["target"]))
    out.sum().backward()
    assert torch.isfinite(values["target"].grad).all()
    assert (values["source"].grad == 0).all()


def test_a_neighbour_that_stands_twice_counts_twice():
    layer, conv = layer_and_conv(1, False)
    neighbors = Neighbors(torch.tensor([4, 4, 2]), torch.tensor([0, 3]))
    values = inputs(neighbors, edged=False)
    torch.testing.assert_close(layer(neighbors=neighbors, **values), by_conv(conv, neighbors, **values))
    attention, loop = layer.attention(neighbors=neighbors, **values)
    assert attention[0] == attention[1]
    torch.testing.assert_close(attention.sum() + loop.sum(), torch.tensor(1.0))


def test_attention_of_each_target_and_head_sums_to_one():
    neighbors = graph()
    layer, _ = layer_and_conv(4, True)
    attention, loops = layer.attention(neighbors=neighbors, **inputs(neighbors))
    total = loops.index_add(0, neighbors.targets(), attention)
    torch.testing.assert_close(total, torch.ones(neighbors.num_targets, 4))


def test_attention_equals_that_of_gatconv():
    neighbors = graph()
    layer, conv = layer_and_conv(2, True)
    values = inputs(neighbors)
    attention, loops = layer.attention(neighbors=neighbors, **values)
    rows = torch.arange(neighbors.num_targets)
    edge_index = torch.stack([torch.cat([neighbors.sources, rows + 7]), torch.cat([neighbors.targets(), rows])])
    features = torch.cat([values["edge_features"], values["loop_feature"].expand(len(rows), -1)])
    both = torch.cat([values["source"], values["target"]])
    _, (_, expected) = conv((both, values["target"]), edge_index, features, return_attention_weights=True)
    torch.testing.assert_close(torch.cat([attention, loops]), expected)


@pytest.mark.parametrize("heads", [1, 4])
def test_regular_neighbours_give_what_the_same_edges_in_csr_give(heads):
    regular = regular_graph(targets=200, width=25)
    layer = layer_and_conv(heads, True)[0].double()
    found = []
    for neighbors in (regular, Neighbors(regular.sources, regular.offsets)):
        layer.zero_grad()
        values = {name: value.detach().double().requires_grad_() for name, value in inputs(neighbors).items()}
        out = layer(neighbors=neighbors, **values)
        out.square().sum().backward()
        found.append([out, *(value.grad for value in values.values()), *(value.grad for value in layer.parameters())])
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("regular", [False, True])
def test_every_gradient_is_right_in_double_precision(regular):
    neighbors = regular_graph(targets=3) if regular else graph(degrees=(3, 0, 2))
    layer = GATLayer(IN, 2, 2, EDGE).double()
    moments = torch.randn(EDGE, dtype=torch.float64), torch.rand(EDGE, dtype=torch.float64) + 0.5
    names, parameters = zip(*layer.named_parameters(), strict=True)
    values = [value.detach().double().requires_grad_() for value in inputs(neighbors).values()]

    def run(source, target, edge_features, loop_feature, *weights):
        given = (source, target, neighbors, edge_features, loop_feature, moments)
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), given)

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(run, (*values, *leaves))


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("stored", [torch.float32, torch.float16])
def test_no_tensor_of_edges_times_width_is_made(heads, regular, stored, largest_made, monkeypatch):
    """Neither saved for backward (the edge features themselves apart) nor made in between, forward or backward."""
    width, num_sources, edges = 64, 20, 4000
    monkeypatch.setattr(edge_fold, "BLOCK", edges * width // 16)
    neighbors = Neighbors(torch.arange(edges) % num_sources, torch.arange(0, edges + 1, 100), 100 if regular else None)
    layer = GATLayer(width, width // heads, heads, width)
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(num_sources, width, generator=generator).requires_grad_()
    target = torch.randn(neighbors.num_targets, width, generator=generator).requires_grad_()
    edge_features = torch.randn(edges, width, generator=generator).to(stored)
    saved: list[int] = []

    def pack(tensor):
        if tensor.data_ptr() != edge_features.data_ptr():
            saved.append(tensor.numel())
        return tensor

    with largest_made() as largest, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(source, target, neighbors, edge_features, torch.zeros(width)).square().sum().backward()
    assert saved
    assert max(saved) < edges * width / 8
    assert 0 < largest.numel < edges * width / 8


def test_the_largest_tensor_of_gatconv_is_seen_to_be_edges_times_width(largest_made):
    neighbors = graph()
    _, conv = layer_and_conv(1, True)
    with largest_made() as largest:
        by_conv(conv, neighbors, **inputs(neighbors))
    assert largest.numel >= neighbors.num_edges * OUT


@pytest.mark.parametrize("stored", [torch.float32, torch.float16])
def test_moments_standardise_edge_features_inside_the_layer(stored):
    neighbors = graph()
    layer, _ = layer_and_conv(2, True)
    values = inputs(neighbors)
    mean, deviation = torch.tensor([3.0, -20.0, 0.1]), torch.tensor([0.5, 4.0, 2.0])
    raw = (values["edge_features"].detach() * deviation + mean).to(stored)
    found = []
    for edge_features, moments in ((raw, (mean, deviation)), ((raw.float() - mean) / deviation, None)):
        layer.zero_grad()
        out = layer(**{**values, "edge_features": edge_features}, neighbors=neighbors, edge_moments=moments)
        out.square().sum().backward()
        found.append([out, *(parameter.grad for parameter in layer.parameters())])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_attention_is_float32_under_autocast():
    neighbors = graph()
    layer, _ = layer_and_conv(2, True)
    values = inputs(neighbors)
    attention = layer.attention(neighbors=neighbors, **values)
    with torch.autocast("cpu", torch.bfloat16):
        again = layer.attention(neighbors=neighbors, **values)
        out = layer(neighbors=neighbors, **values)
    assert all(torch.equal(first, second) for first, second in zip(attention, again, strict=True))
    out.float().sum().backward()
    assert all(torch.isfinite(value.grad).all() for value in values.values())


def test_very_large_logits_give_no_nan():
    neighbors = graph()
    layer, _ = layer_and_conv(1, True)
    values = {
        name: None if value is None else (value.detach() * 1e4).requires_grad_()
        for name, value in inputs(neighbors).items()
    }
    out = layer(neighbors=neighbors, **values)
    assert torch.isfinite(out).all()
    out.sum().backward()
    assert all(torch.isfinite(value.grad).all() for value in values.values())


def test_softmax_is_in_float32_for_bfloat16_inputs():
    """1,000 equal neighbours: summed in bfloat16 their weights would stop growing at 256."""
    neighbors = Neighbors(torch.zeros(1000, dtype=torch.int64), torch.tensor([0, 1000]))
    layer = GATLayer(IN, OUT).to(torch.bfloat16)
    layer.start_as_identity()
    source, target = torch.ones(1, IN, dtype=torch.bfloat16), torch.ones(1, IN, dtype=torch.bfloat16)
    attention, loop = layer.attention(source, target, neighbors)
    assert attention.dtype == loop.dtype == torch.float32
    torch.testing.assert_close(attention, torch.full((1000, 1), 1 / 1001))
    out = layer(source, target, neighbors)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.ones(1, OUT), atol=0.02, rtol=0)


def test_started_as_identity_it_is_the_mean_of_the_neighbours_and_the_node():
    neighbors = graph()
    layer = GATLayer(IN, IN // 2, 2, EDGE)
    layer.start_as_identity()
    values = inputs(neighbors)
    out = layer(neighbors=neighbors, **values)
    for row, target in enumerate(values["target"]):
        heard = neighbors.sources[neighbors.offsets[row] : neighbors.offsets[row + 1]]
        torch.testing.assert_close(out[row], torch.cat([values["source"][heard], target[None]]).mean(0))


def test_dropout_drops_attention_in_training_only():
    neighbors = graph()
    torch.manual_seed(0)
    layer = GATLayer(IN, OUT, dropout=0.5)
    values = inputs(neighbors, edged=False)
    layer.eval()
    torch.testing.assert_close(layer(neighbors=neighbors, **values), layer(neighbors=neighbors, **values))
    layer.train()
    assert not torch.equal(layer(neighbors=neighbors, **values), layer(neighbors=neighbors, **values))


def test_a_layer_with_edge_features_refuses_to_run_without():
    neighbors = graph()
    with pytest.raises(ValueError, match="edge_features"):
        GATLayer(IN, OUT, edge_dim=EDGE)(neighbors=neighbors, **inputs(neighbors, edged=False))


def test_the_order_of_a_targets_edges_does_not_matter():
    neighbors = Neighbors(torch.tensor([1, 3, 5]), torch.tensor([0, 3]))
    turned = Neighbors(torch.tensor([5, 1, 3]), torch.tensor([0, 3]))
    layer, _ = layer_and_conv(1, True)
    values = inputs(neighbors)
    other = {**values, "edge_features": values["edge_features"][[2, 0, 1]]}
    torch.testing.assert_close(layer(neighbors=neighbors, **values), layer(neighbors=turned, **other))
