import math

import pytest
import torch

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import joint_listwise_loss


def test_a_hand_worked_batch():
    scores = torch.tensor([[0.0, 0.0, 7.0], [math.log(3), 0.0, 0.0]])
    logits = torch.tensor([[math.log(3), 0.0, -2.0], [0.0, 0.0, math.log(2)]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    first = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25) - math.log(0.75)
    second = 0.6 * math.log(0.6 / 0.25) + 0.2 * math.log(0.2 / 0.25) + 0.2 * math.log(0.2 / 0.5) - math.log(0.25)
    assert float(joint_listwise_loss(scores, logits, mask)) == pytest.approx((first + second) / 2, rel=1e-5)


def test_both_models_receive_a_gradient_of_the_divergence():
    scores = torch.tensor([[1.0, 0.0]], requires_grad=True)
    logits = torch.tensor([[30.0, 0.0]], requires_grad=True)  # sure of the label: the second term has no gradient
    joint_listwise_loss(scores, logits, torch.ones(1, 2, dtype=torch.bool)).backward()
    assert float(scores.grad[0, 0]) < -1  # towards the cross-encoder
    assert float(logits.grad[0, 0]) == pytest.approx(1 - 1 / (1 + math.exp(-1)), abs=1e-3)  # and the other way round


def test_a_batch_without_lists_is_0_with_a_gradient():
    scores, logits = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
    loss = joint_listwise_loss(scores, logits, torch.tensor([[True, False, False]] * 2))
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()
    assert not logits.grad.any()


def test_shapes_that_differ_are_refused():
    with pytest.raises(GnnRetrievalError, match="must have one shape"):
        joint_listwise_loss(torch.zeros(2, 3), torch.zeros(2, 2), torch.ones(2, 3, dtype=torch.bool))
