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

    The teacher alone decides how relevant a passage is: labels are not used, so a wrong label cannot hurt. Unlike
    :func:`margin_mse_loss` it compares shares, not score differences: where the teacher is sure of one passage, the
    others hardly count. It uses a query's own list only, without in-batch negatives, and each passage of the list needs
    a teacher's score.

    RocketQAv2 (arXiv 2110.07367) differs in two ways. It trains the teacher at the same time, as
    :func:`joint_listwise_loss` does; here the teacher is fixed and receives no gradient. And it prints the divergence
    from student to teacher; this one, from teacher to student, is usual in distillation and penalises most a passage
    that the teacher ranks high and the student ranks low.

    Args:
        scores: ``(B, L)`` similarity of each query to the passages of its list, scaled by its temperature.
        teacher: ``(B, L)`` the teacher's logits (not probabilities) of the same pairs.
        mask: ``(B, L)`` bool, False at empty places of a list; scores there are ignored.

    Returns:
        Mean over the queries that have at least two passages, a float32 scalar; 0 if there is none.

    Raises:
        GnnRetrievalError: The three tensors have different shapes.

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
        raise GnnRetrievalError(f"scores, teacher and mask must have one shape (queries, list); these have {shapes}.")
    lists = mask.sum(-1) >= 2  # a single passage has share 1, whatever its score
    if not lists.any():
        return scores[:0].float().sum()  # 0 with a gradient
    absent = ~mask[lists]  # (b, L)
    student, target = (
        given[lists].float().masked_fill(absent, float("-inf")).log_softmax(-1) for given in (scores, teacher.detach())
    )
    differences = (target - student).masked_fill(absent, 0.0)  # -inf minus -inf would be NaN
    return (target.exp() * differences).sum(-1).mean()


DUAL_ENCODER = DualEncoderLoss("kl", lambda batch: listwise_distillation_loss(*batch.lists()), is_distilled=True)
