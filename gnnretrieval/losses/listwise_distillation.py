"""Listwise distillation: the teacher's distribution over a query's list of passages (RocketQAv2)."""

from __future__ import annotations

from torch import Tensor

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses.dual_encoder_loss import DualEncoderLoss


def listwise_distillation_loss(scores: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    r"""KL divergence from the teacher's distribution over each query's list to the student's (Ren et al. 2021, §3.2).

    .. math::
        L_{KL} = \sum_{p \in P_q} \tilde t(q, p) \log \frac{\tilde t(q, p)}{\tilde s(q, p)},
        \qquad \tilde s = \mathrm{softmax}_{P_q}(s), \; \tilde t = \mathrm{softmax}_{P_q}(t)

    No label is needed, and a wrong one cannot hurt: how relevant each passage is, is the teacher's to say. Unlike
    :func:`margin_mse_loss` it looks at shares and not at score differences: a teacher that is sure of one passage says
    little about the others. It compares a query's own list only: batch negatives are :func:`contrastive_loss`'s, and
    every candidate costs a teacher's score. RocketQAv2 (arXiv 2110.07367) differs in two things: it trains the teacher
    at the same time, which here is fixed and receives no gradient, and it prints the divergence the other way round,
    from student to teacher; this is the way of distillation, which lets no passage go that the teacher holds relevant.

    Args:
        scores: ``(B, L)`` similarity of each query to the passages of its list, scaled by its temperature.
        teacher: ``(B, L)`` the teacher's scores of the same pairs: logits, not probabilities.
        mask: ``(B, L)`` bool, False where the list has no passage: what stands there is never looked at.

    Returns:
        The mean over the queries with two passages or more, float32; 0 if there is none.

    Raises:
        GnnRetrievalError: the three have different shapes.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[0.0, 0.0, 5.0]])  # (1, 3)
        >>> teacher = torch.tensor([[3.0, 1.0, 0.0]]).log()  # (1, 3), shares 3/4 and 1/4 of the first two
        >>> loss = listwise_distillation_loss(scores, teacher, torch.tensor([[True, True, False]]))
        >>> round(float(loss), 4)  # 3/4 log(3/4 / 1/2) + 1/4 log(1/4 / 1/2)
        0.1308
    """
    if not scores.shape == teacher.shape == mask.shape:
        shapes = ", ".join(str(tuple(given.shape)) for given in (scores, teacher, mask))
        raise GnnRetrievalError(f"scores, teacher and mask are of one shape (queries, list); these are {shapes}.")
    lists = mask.sum(-1) >= 2  # one passage alone has the share 1 whatever its score
    if not lists.any():
        return scores[:0].float().sum()  # 0 with a gradient
    absent = ~mask[lists]  # (b, L)
    student, target = (
        given[lists].float().masked_fill(absent, float("-inf")).log_softmax(-1) for given in (scores, teacher.detach())
    )
    differences = (target - student).masked_fill(absent, 0.0)  # -inf less -inf would be no number
    return (target.exp() * differences).sum(-1).mean()


DUAL_ENCODER = DualEncoderLoss("kl", lambda batch: listwise_distillation_loss(*batch.lists()), is_distilled=True)
