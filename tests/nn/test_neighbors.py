import pytest
import torch

from gnnretrieval.nn import Neighbors
from gnnretrieval.nn.segment_softmax import edge_scores, segment_softmax

FOUND = torch.tensor([[4, 0, 2], [1, 1, 0], [2, 4, 1]])


def both_paths() -> tuple[Neighbors, Neighbors]:
    regular = Neighbors.regular(FOUND)
    return regular, Neighbors(regular.sources, regular.offsets)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def test_regular_neighbours_are_the_csr_of_their_rows():
    regular, _ = both_paths()
    assert regular.sources.tolist() == FOUND.ravel().tolist()
    assert regular.offsets.tolist() == [0, 3, 6, 9]
    assert (regular.width, regular.num_targets, regular.num_edges) == (3, 3, 9)
    assert regular.targets().tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_rows_that_are_a_view_are_taken():
    assert Neighbors.regular(FOUND[:, :2]).sources.tolist() == [4, 0, 1, 1, 2, 4]


def test_a_width_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="9 edges are not 2 for each of 3 targets"):
        Neighbors(FOUND.ravel(), torch.tensor([0, 3, 6, 9]), width=2)


def test_values_are_spread_totalled_and_compared_alike_on_both_paths():
    of_targets, of_edges = random(3, 2), random(9, 2)
    for neighbors in both_paths():
        torch.testing.assert_close(neighbors.spread(of_targets), of_targets.repeat_interleave(3, 0))
        torch.testing.assert_close(neighbors.total(of_edges), of_edges.view(3, 3, 2).sum(1))
        torch.testing.assert_close(neighbors.highest(of_edges), of_edges.view(3, 3, 2).amax(1))


def test_targets_of_no_edges_have_no_total_and_nothing_highest():
    for neighbors in (
        Neighbors.regular(torch.empty(2, 0, dtype=torch.int64)),
        Neighbors(FOUND[0, :0], FOUND.new_zeros(3)),
    ):
        assert neighbors.total(torch.empty(0, 2)).tolist() == [[0, 0], [0, 0]]
        assert neighbors.highest(torch.empty(0, 2)).tolist() == [[-torch.inf] * 2] * 2
        assert neighbors.spread(torch.zeros(2, 2)).shape == (0, 2)
        assert neighbors.reversed(5).neighbors.offsets.tolist() == [0] * 6


def test_reversed_they_are_the_same_edges_by_source_and_made_once():
    for neighbors in both_paths():
        by_source, order = neighbors.reversed(6)
        assert by_source.offsets.tolist() == [0, 2, 5, 7, 7, 9, 9]
        assert by_source.sources.tolist() == [0, 1, 1, 1, 2, 0, 2, 0, 2]
        assert neighbors.sources[order].tolist() == by_source.targets().tolist()
        assert neighbors.targets()[order].tolist() == by_source.sources.tolist()
        assert neighbors.reversed(6) is neighbors.reversed(6)


@pytest.mark.parametrize("uneven", [False, True])
def test_scores_and_softmax_have_the_right_gradients(uneven):
    graphs = [Neighbors(FOUND.ravel(), torch.tensor([0, 5, 5, 9]))] if uneven else both_paths()
    for neighbors in graphs:
        assert torch.autograd.gradcheck(
            lambda *given, n=neighbors: edge_scores(*given, n), (random(6, 2), random(3, 2))
        )
        assert torch.autograd.gradcheck(
            lambda *given, n=neighbors: segment_softmax(*given, n), (random(9, 2), random(3, 2))
        )


def test_the_softmax_is_torchs_over_a_targets_edges_and_its_loop():
    logits, loops = random(9, 2), random(3, 2)
    expected = torch.cat([logits.view(3, 3, 2), loops[:, None]], 1).softmax(1)
    for neighbors in both_paths():
        attention, loop_attention = segment_softmax(logits, loops, neighbors)
        torch.testing.assert_close(attention.view(3, 3, 2), expected[:, :3])
        torch.testing.assert_close(loop_attention, expected[:, 3])
