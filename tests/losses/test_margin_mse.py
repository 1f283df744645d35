import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import margin_mse_loss

ALL = torch.ones(2, 3, dtype=torch.bool)
SCORES = torch.tensor([[3.0, 1.0, 2.0], [0.0, 2.0, 9.0]])
TEACHER = torch.tensor([[5.0, 2.0, 1.0], [4.0, 1.0, 9.0]])


def test_three_pairs_by_hand():
    mask = torch.tensor([[True, True, True], [True, True, False]])
    # Margins 2, 1 and -2 of the student, 3, 4 and 3 of the teacher.
    assert float(margin_mse_loss(SCORES, TEACHER, mask)) == pytest.approx((1 + 9 + 25) / 3)


def test_whole_lists_are_torch_s_mse_loss_of_the_margins():
    wanted = F.mse_loss(SCORES[:, :1] - SCORES[:, 1:], TEACHER[:, :1] - TEACHER[:, 1:])
    torch.testing.assert_close(margin_mse_loss(SCORES, TEACHER, ALL), wanted)


def test_only_differences_count():
    shifted = TEACHER + torch.tensor([[100.0], [-7.0]])
    assert margin_mse_loss(shifted, TEACHER, ALL) == 0
    torch.testing.assert_close(margin_mse_loss(SCORES, shifted, ALL), margin_mse_loss(SCORES, TEACHER, ALL))


@pytest.mark.parametrize("hidden", [0.0, 1e4, float("inf"), float("-inf"), float("nan")])
def test_what_stands_where_no_passage_is_does_not_matter(hidden):
    scores = torch.tensor([[3.0, 1.0, hidden], [hidden, 2.0, 9.0]], requires_grad=True)
    teacher = torch.tensor([[5.0, 2.0, hidden], [hidden, 1.0, 9.0]])
    loss = margin_mse_loss(scores, teacher, torch.tensor([[True, True, False], [False, True, True]]))
    loss.backward()
    assert loss.item() == 1  # the second query has no positive
    assert scores.grad.tolist() == [[-2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, True]])
def test_without_any_pair_the_loss_is_zero_and_can_go_backward(mask):
    scores = torch.full((2, 3), float("-inf"), requires_grad=True)
    loss = margin_mse_loss(scores, TEACHER, torch.tensor([mask, mask]))
    loss.backward()
    assert loss == 0
    assert not scores.grad.any()


def test_the_gradient_is_the_slope_of_the_loss_and_the_teacher_has_none():
    scores, teacher = SCORES.double().requires_grad_(), TEACHER.clone().requires_grad_()
    # Summed in float32: wide differences, few digits.
    assert gradcheck(lambda given: margin_mse_loss(given, TEACHER, ALL), scores, eps=1e-2, atol=1e-2)
    margin_mse_loss(scores, teacher, ALL).backward()
    assert teacher.grad is None


def test_it_is_summed_in_float32_whatever_the_scores():
    scores = torch.tensor([[300.0, 1.0, 2.0]]).bfloat16()
    loss = margin_mse_loss(scores, TEACHER[:1].bfloat16(), ALL[:1])
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, margin_mse_loss(scores.float(), TEACHER[:1], ALL[:1]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(GnnRetrievalError, match=r"one shape.*\(2, 3\), \(2, 3\), \(3,\)"):
        margin_mse_loss(SCORES, TEACHER, torch.ones(3, dtype=torch.bool))
