from math import log

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import listwise_distillation_loss

ALL = torch.ones(2, 3, dtype=torch.bool)


def test_two_lists_by_hand():
    scores = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.1, 0.7]]).log()
    teacher = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.4, 0.7]]).log()
    mask = torch.tensor([[True, True, True], [True, True, False]])
    first = 0.7 * log(0.7 / 0.5) + 0.2 * log(0.2 / 0.25) + 0.1 * log(0.1 / 0.25)
    second = 0.6 * log(0.6 / 0.9) + 0.4 * log(0.4 / 0.1)
    assert float(listwise_distillation_loss(scores, teacher, mask)) == pytest.approx((first + second) / 2)


def test_whole_lists_are_torch_s_kl_div():
    torch.manual_seed(0)
    scores, teacher = 10 * torch.randn(4, 7), 10 * torch.randn(4, 7)
    wanted = F.kl_div(scores.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
    torch.testing.assert_close(listwise_distillation_loss(scores, teacher, torch.ones(4, 7, dtype=torch.bool)), wanted)


def test_a_student_that_agrees_up_to_a_constant_has_no_loss():
    teacher = torch.tensor([[3.0, 1.0, -2.0], [0.0, 5.0, 5.0]])
    loss = listwise_distillation_loss(teacher + torch.tensor([[4.0], [-9.0]]), teacher, ALL)
    assert loss.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("hidden", [0.0, 1e4, float("inf"), float("-inf"), float("nan")])
def test_what_stands_where_no_passage_is_does_not_matter(hidden):
    scores = torch.tensor([[1.0, 0.0, hidden], [2.0, hidden, hidden], [1.0, 2.0, 3.0]], requires_grad=True)
    teacher = torch.tensor([[0.0, 3.0, hidden], [hidden, hidden, 1.0], [1.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    loss = listwise_distillation_loss(scores, teacher, mask)
    loss.backward()
    first = listwise_distillation_loss(scores[:1, :2], teacher[:1, :2], mask[:1, :2])
    last = listwise_distillation_loss(scores[2:], teacher[2:], mask[2:])
    torch.testing.assert_close(loss, (first + last) / 2)  # the list of one passage counts nothing
    assert (scores.grad != 0).tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert scores.grad.isfinite().all()


def test_without_any_list_the_loss_is_zero_and_can_go_backward():
    scores = torch.full((2, 3), float("-inf"), requires_grad=True)
    loss = listwise_distillation_loss(scores, torch.zeros(2, 3), torch.eye(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert not scores.grad.any()


def test_the_gradient_is_the_difference_of_the_shares_and_the_teacher_has_none():
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 5.0]], requires_grad=True)
    teacher = torch.tensor([[0.0, 3.0, 1.0], [1.0, 1.0, 1.0]], requires_grad=True)
    listwise_distillation_loss(scores, teacher, ALL).backward()
    torch.testing.assert_close(scores.grad, (scores.softmax(-1) - teacher.softmax(-1)).detach() / 2)
    assert teacher.grad is None


def test_the_gradient_is_the_slope_of_the_loss():
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    teacher, mask = torch.tensor([[0.0, 3.0, 1.0], [1.0, 1.0, 1.0]]), torch.tensor([[True] * 3, [True, True, False]])
    # Summed in float32: wide differences, few digits.
    assert gradcheck(lambda given: listwise_distillation_loss(given, teacher, mask), scores, eps=1e-2, atol=1e-3)


def test_it_is_summed_in_float32_whatever_the_scores():
    scores, teacher = torch.tensor([[20.0, 19.9, 19.8]]).bfloat16(), torch.tensor([[1.0, 0.3, 0.1]]).bfloat16()
    loss = listwise_distillation_loss(scores, teacher, ALL[:1])
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, listwise_distillation_loss(scores.float(), teacher.float(), ALL[:1]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(GnnRetrievalError, match=r"one shape.*\(2, 3\), \(2, 1\), \(2, 3\)"):
        listwise_distillation_loss(torch.zeros(2, 3), torch.zeros(2, 1), ALL)
