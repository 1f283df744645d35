import pytest
import torch

from gnnretrieval.nn import Neighbors
from gnnretrieval.nn.weighted_sum import chosen_dots, weighted_sum

GRAPHS = {
    "regular": Neighbors.regular(torch.tensor([[0, 2], [2, 2], [3, 0]])),
    "uneven": Neighbors(torch.tensor([3, 3, 0, 2]), torch.tensor([0, 3, 3, 4])),
    "no edges": Neighbors(torch.empty(0, dtype=torch.int64), torch.tensor([0, 0, 0, 0])),
}


def values(neighbors: Neighbors, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 5), (neighbors.num_targets, 5), (neighbors.num_edges,), (neighbors.num_targets,)]
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_the_sum_of_gathered_rows_times_their_weights_and_its_gradients_are_right(name):
    neighbors = GRAPHS[name]
    source, target, weights, loops = values(neighbors)
    expected = loops[:, None] * target
    expected = expected.index_add(0, neighbors.targets(), weights[:, None] * source[neighbors.sources])
    torch.testing.assert_close(weighted_sum(source, target, weights, loops, neighbors), expected)
    assert torch.autograd.gradcheck(lambda *given: weighted_sum(*given, neighbors), values(neighbors))


def test_only_the_gradients_that_are_wanted_are_made():
    source, target, weights, loops = values(GRAPHS["regular"])
    weighted_sum(source.detach(), target, weights.detach(), loops, GRAPHS["regular"]).sum().backward()
    assert source.grad is None
    assert weights.grad is None
    torch.testing.assert_close(loops.grad, target.detach().sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_that_is_one_number_for_all_is_taken(dtype):
    """The gradient of a sum is an expanded tensor, without rows of its own."""
    source, *others = values(GRAPHS["uneven"], dtype)
    weighted_sum(source, *others, GRAPHS["uneven"]).sum().backward()
    torch.testing.assert_close(source.grad[3], others[1].detach()[:2].sum().expand(5))
    assert (source.grad[1] == 0).all()


def test_dots_are_those_of_each_edges_two_rows():
    for neighbors in GRAPHS.values():
        others, rows, *_ = (value.detach() for value in values(neighbors))
        expected = (rows[neighbors.targets()] * others[neighbors.sources]).sum(1)
        torch.testing.assert_close(chosen_dots(rows, others, neighbors), expected)
