from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.losses import contrastive_loss


def only(columns: list[int], positives: list[int], width: int) -> torch.Tensor:
    relevant = torch.zeros(len(positives), width, dtype=torch.bool)
    for row, column in enumerate(positives):
        relevant[row, column] = True
    for row, column in enumerate(columns):
        relevant[row, column] = True
    return relevant


def test_two_queries_by_hand():
    scores = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 0.5, 3.0]])
    positives = torch.tensor([0, 1])
    first = -log(exp(2) / (exp(2) + exp(1) + exp(0)))
    second = -log(exp(0.5) / (exp(-1) + exp(0.5) + exp(3)))
    loss = contrastive_loss(scores, positives, only([], [0, 1], 3))
    assert loss.item() == pytest.approx((first + second) / 2)


def test_another_relevant_passage_is_no_negative():
    scores = torch.tensor([[2.0, 1.0, 0.0]])
    relevant = torch.tensor([[True, True, False]])
    loss = contrastive_loss(scores, torch.tensor([0]), relevant)
    assert loss.item() == pytest.approx(-log(exp(2) / (exp(2) + exp(0))))
    loss = contrastive_loss(scores, torch.tensor([1]), relevant)
    assert loss.item() == pytest.approx(-log(exp(1) / (exp(1) + exp(0))))


@pytest.mark.parametrize("scale", [0.5, 20.0])
def test_the_scale_arrives_in_the_scores(scale):
    cosines = [0.9, 0.7, -0.2]
    loss = contrastive_loss(scale * torch.tensor([cosines]), torch.tensor([1]), only([], [1], 3))
    total = sum(exp(scale * cosine) for cosine in cosines)
    assert loss.item() == pytest.approx(-log(exp(scale * 0.7) / total), rel=1e-5)


@given(st.data())
def test_a_query_whose_candidates_are_all_relevant_has_no_loss_and_masked_columns_no_gradient(data):
    width = data.draw(st.integers(2, 6))
    positive = data.draw(st.integers(0, width - 1))
    others = data.draw(st.sets(st.integers(0, width - 1)))
    relevant = torch.zeros(1, width, dtype=torch.bool)
    relevant[0, [positive, *others]] = True
    values = data.draw(st.lists(st.floats(-5, 5), min_size=width, max_size=width))
    scores = torch.tensor([values]).requires_grad_()
    loss = contrastive_loss(scores, torch.tensor([positive]), relevant)
    loss.backward()
    for column in others - {positive}:
        assert scores.grad[0, column] == 0
    assert scores.grad.sum().abs() < 1e-5
    if relevant.all():
        assert loss == 0


def test_the_gradient_is_the_softmax_less_the_positive():
    scores = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    contrastive_loss(scores, torch.tensor([0]), only([], [0], 3)).backward()
    softmax = torch.softmax(scores.detach(), -1)
    torch.testing.assert_close(scores.grad, softmax - torch.tensor([[1.0, 0.0, 0.0]]))


def test_it_is_summed_in_float32_whatever_the_scores():
    scores = torch.tensor([[20.0, 19.9, 19.8]])
    relevant = only([], [0], 3)
    loss = contrastive_loss(scores.to(torch.bfloat16), torch.tensor([0]), relevant)
    assert loss.dtype == torch.float32
    expected = contrastive_loss(scores.to(torch.bfloat16).double(), torch.tensor([0]), relevant)
    torch.testing.assert_close(loss, expected.float())


def test_the_given_relevance_is_not_changed():
    relevant = torch.tensor([[True, True, False]])
    contrastive_loss(torch.zeros(1, 3), torch.tensor([0]), relevant)
    assert relevant.tolist() == [[True, True, False]]


def test_without_a_negative_the_loss_is_zero_and_the_gradient_finite():
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
    relevant = torch.tensor([[True, True, True], [False, True, False]])
    loss = contrastive_loss(scores, torch.tensor([0, 1]), relevant)
    loss.backward()
    assert loss.item() == pytest.approx(-log(exp(1) / (exp(1) + 2)) / 2)
    assert scores.grad[0].tolist() == [0.0, 0.0, 0.0]
    assert scores.grad.isfinite().all()


def test_a_candidate_that_is_masked_in_the_scores_already_gives_no_nan():
    scores = torch.tensor([[2.0, float("-inf"), 0.0]], requires_grad=True)
    for relevant in (only([], [0], 3), torch.tensor([[True, True, False]])):
        scores.grad = None
        loss = contrastive_loss(scores, torch.tensor([0]), relevant)
        loss.backward()
        assert loss.item() == pytest.approx(-log(exp(2) / (exp(2) + exp(0))))
        assert scores.grad.isfinite().all()
        assert scores.grad[0, 1] == 0
