import pytest
import torch

from gnnretrieval.nn import GATLayer, Neighbors


@pytest.mark.parametrize("regular", [False, True])
def test_gradients_of_a_large_graph_are_the_same_bytes_every_time_on_two_threads_and_on_one(regular):
    torch.manual_seed(0)
    sources, targets, edges = 5_000, 4_000, 200_000
    counts = torch.bincount(torch.randint(0, targets, (edges,)), minlength=targets)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    neighbors = Neighbors(torch.randint(0, sources, (edges,)), offsets)
    if regular:
        neighbors = Neighbors.regular(neighbors.sources.view(targets, -1))
    layer = GATLayer(8, 8, edge_dim=2)
    source, target, features = torch.randn(sources, 8), torch.randn(targets, 8), torch.randn(edges, 2)
    threads = torch.get_num_threads()
    try:
        gradients = []
        for count in (2, 2, 2, 1, 1):
            torch.set_num_threads(count)
            layer.zero_grad()
            leaf = source.clone().requires_grad_()
            layer(leaf, target, neighbors, features, torch.zeros(2)).square().sum().backward()
            gradients.append([leaf.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
    finally:
        torch.set_num_threads(threads)
    for first, again in ((0, 1), (0, 2), (3, 4)):
        pairs = zip(gradients[first], gradients[again], strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    # Between thread counts a matrix product may be summed in another order: some processors' kernels do, some do not.
    for one, other in zip(gradients[0], gradients[3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(one.abs().max()))
