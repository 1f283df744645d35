from math import exp, log

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from gnnretrieval.losses import passage_centric_loss

POSITIVES = torch.tensor([0, 2])
ONE_EACH = torch.tensor([[True, False, False], [False, False, True]])


def scores() -> tuple[torch.Tensor, torch.Tensor]:
    """Queries with candidates, positives with candidates."""
    return (
        torch.tensor([[2.0, 7.0, -7.0], [4.0, -4.0, 0.5]], requires_grad=True),
        torch.tensor([[9.0, 1.0, 0.0], [-1.0, 3.0, 8.0]], requires_grad=True),
    )


def test_equation_5_by_hand():
    first = -log(exp(2) / (exp(2) + exp(1) + exp(0)))
    second = -log(exp(0.5) / (exp(0.5) + exp(-1) + exp(3)))
    loss = passage_centric_loss(*scores(), POSITIVES, ONE_EACH)
    assert loss.item() == pytest.approx((first + second) / 2)


def test_another_relevant_passage_is_no_negative():
    relevant = torch.tensor([[True, False, True], [False, False, True]])
    first = -log(exp(2) / (exp(2) + exp(1)))
    second = -log(exp(0.5) / (exp(0.5) + exp(-1) + exp(3)))
    assert passage_centric_loss(*scores(), POSITIVES, relevant).item() == pytest.approx((first + second) / 2)


def test_a_duplicate_of_the_query_s_pair_has_the_same_loss():
    doubled = [one.repeat(2, 1) for one in scores()]
    loss = passage_centric_loss(*doubled, POSITIVES.repeat(2), ONE_EACH.repeat(2, 1))
    torch.testing.assert_close(loss, passage_centric_loss(*scores(), POSITIVES, ONE_EACH))


def test_it_is_cross_entropy_where_the_query_stands_among_the_passages():
    asked, passages = scores()
    logits = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 3.0, 0.5]])
    loss = passage_centric_loss(asked, passages, POSITIVES, ONE_EACH)
    torch.testing.assert_close(loss, F.cross_entropy(logits, POSITIVES))


def test_only_the_positive_s_score_and_the_negatives_similarity_get_a_gradient():
    asked, passages = scores()
    relevant = torch.tensor([[True, True, False], [False, False, True]])
    passage_centric_loss(asked, passages, POSITIVES, relevant).backward()
    assert (asked.grad != 0).tolist() == [[True, False, False], [False, False, True]]
    assert (passages.grad != 0).tolist() == [[False, False, True], [True, True, False]]
    assert asked.grad[0, 0] < 0 < passages.grad[0, 2]


def test_without_a_negative_the_loss_is_zero_and_the_gradient_finite():
    asked, passages = scores()
    loss = passage_centric_loss(asked, passages, POSITIVES, torch.ones(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert not asked.grad.any()
    assert not passages.grad.any()


def test_the_gradient_is_the_slope_of_the_loss():
    inputs = [one.detach().double().requires_grad_() for one in scores()]
    # Summed in float32: wide differences, few digits.
    assert gradcheck(lambda *given: passage_centric_loss(*given, POSITIVES, ONE_EACH), inputs, eps=1e-2, atol=1e-3)


def test_it_is_summed_in_float32_whatever_the_scores():
    halves = [one.detach().to(torch.bfloat16) for one in scores()]
    loss = passage_centric_loss(*halves, POSITIVES, ONE_EACH)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, passage_centric_loss(*(one.float() for one in halves), POSITIVES, ONE_EACH))
