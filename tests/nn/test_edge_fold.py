import pytest
import torch

from gnnretrieval.nn import edge_fold
from gnnretrieval.nn.edge_fold import fold_edges


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("edges", [0, 1, 11])
def test_it_is_a_matrix_product_in_blocks_and_its_gradients_are_right(monkeypatch, heads, centred, edges):
    monkeypatch.setattr(edge_fold, "BLOCK", 4 * 3)  # blocks of three rows
    monkeypatch.setattr(edge_fold, "BAG", 2)
    features, fold = random(edges, 4).requires_grad_(), random(4, heads, seed=1).requires_grad_()
    mean = random(4, seed=2) if centred else None
    expected = (features if mean is None else features - mean) @ fold
    torch.testing.assert_close(fold_edges(features, fold, mean), expected)
    assert torch.autograd.gradcheck(lambda *given: fold_edges(*given, mean), (features, fold))


@pytest.mark.parametrize("centred", [False, True])
def test_float16_features_give_what_their_float32_copy_gives_and_no_such_copy_is_made(centred, largest_made):
    edges, width = 3 * edge_fold.BLOCK // 64, 64
    features = random(edges, width, dtype=torch.float32).half()
    mean = random(width, seed=2, dtype=torch.float32) if centred else None
    gradient = random(edges, 1, seed=3, dtype=torch.float32)
    found = []
    for given in (features, features.float()):
        fold = random(width, 1, seed=1, dtype=torch.float32).requires_grad_()
        with largest_made() as largest:
            logits = fold_edges(given, fold, mean)
            logits.backward(gradient)
        if given is features or centred:
            assert largest.numel <= edge_fold.BLOCK
        found.append((logits.detach(), fold.grad))
    assert found[0][0].dtype == torch.float32
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_a_mean_far_from_zero_costs_no_precision():
    """Folding the mean too would subtract two large sums: here it would be off by more than 1e-3."""
    features = 40 + 0.01 * random(1000, 64)
    mean, fold = features.mean(0), random(64, 1, seed=1)
    logits = fold_edges(features.float(), fold.float(), mean.float())
    expected = (features.float().double() - mean.float().double()) @ fold.float().double()
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-6)


def test_edge_features_of_another_type_get_a_gradient_of_that_type():
    features = random(5, 4).half().requires_grad_()
    fold = random(4, 2, dtype=torch.float32)
    fold_edges(features, fold).sum().backward()
    assert features.grad.dtype == torch.float16
    torch.testing.assert_close(features.grad, fold.sum(1).half().expand(5, 4))
