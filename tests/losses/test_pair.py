from math import exp, log

import pytest
import torch

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import contrastive_loss, pair_loss, passage_centric_loss

torch.manual_seed(0)
SCORES, PASSAGE_SCORES = 5 * torch.randn(4, 6), 5 * torch.randn(4, 6)
POSITIVES = torch.tensor([0, 3, 5, 0])
RELEVANT = torch.zeros(4, 6, dtype=torch.bool)
RELEVANT[torch.arange(4), POSITIVES] = True
RELEVANT[0, 2] = True


def test_equation_6_by_hand():
    scores, passage_scores = torch.tensor([[2.0, 1.0]]), torch.tensor([[9.0, 0.5]])
    query_centric = -log(exp(2) / (exp(2) + exp(1)))
    passage_centric = -log(exp(2) / (exp(2) + exp(0.5)))
    loss = pair_loss(scores, passage_scores, torch.tensor([0]), torch.tensor([[True, False]]), alpha=0.25)
    assert loss.item() == pytest.approx(0.75 * query_centric + 0.25 * passage_centric)


def test_a_tenth_is_passage_centric_as_in_the_paper():
    given = (SCORES, PASSAGE_SCORES, POSITIVES, RELEVANT)
    assert torch.equal(pair_loss(*given), pair_loss(*given, alpha=0.1))


def test_at_its_ends_it_is_exactly_one_of_the_two():
    given = (SCORES, PASSAGE_SCORES, POSITIVES, RELEVANT)
    assert torch.equal(pair_loss(*given, alpha=0), contrastive_loss(SCORES, POSITIVES, RELEVANT))
    assert torch.equal(pair_loss(*given, alpha=1), passage_centric_loss(*given))


def test_without_a_share_the_gradient_is_the_contrastive_loss_s():
    scores, passage_scores = SCORES.clone().requires_grad_(), PASSAGE_SCORES.clone().requires_grad_()
    pair_loss(scores, passage_scores, POSITIVES, RELEVANT, alpha=0).backward()
    alone = SCORES.clone().requires_grad_()
    contrastive_loss(alone, POSITIVES, RELEVANT).backward()
    assert torch.equal(scores.grad, alone.grad)
    assert not passage_scores.grad.any()


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(alpha):
    with pytest.raises(GnnRetrievalError, match="give 0 to 1"):
        pair_loss(SCORES, PASSAGE_SCORES, POSITIVES, RELEVANT, alpha=alpha)
