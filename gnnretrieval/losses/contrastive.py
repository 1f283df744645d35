"""The contrastive loss over a batch's candidates (eq. 2, 12)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.losses.dual_encoder_loss import DualEncoderLoss


def contrastive_loss(scores: Tensor, positives: Tensor, relevant: Tensor) -> Tensor:
    r"""Negative log-likelihood of each query's positive among all candidates (eq. 2; eq. 12 over graph embeddings).

    .. math::
        L = -\log \frac{\exp s(q, p^+)}{\exp s(q, p^+) + \sum_{p^-} \exp s(q, p^-)}

    A query's other relevant passages are no negatives of it: they are left out of the sum. The similarity arrives
    scaled by its temperature. It asks for labels alone; :func:`pair_loss` also tells passages from each other, and
    :func:`listwise_distillation_loss` and :func:`margin_mse_loss` learn from a teacher's scores instead.

    Args:
        scores: ``(B, C)`` similarity of each query to each candidate.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True wherever the candidate is relevant to the query.

    Returns:
        The mean over the pairs of the batch, float32: a query counts once for each of its positives. A query without a
        negative has no loss.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])  # (1, 3)
        >>> relevant = torch.tensor([[True, False, False]])
        >>> loss = contrastive_loss(scores, torch.tensor([0]), relevant)
        >>> round(float(loss), 4)  # -log(exp(2) / (exp(2) + exp(1) + exp(0)))
        0.4076
    """
    others = relevant.clone()
    others[torch.arange(len(positives), device=others.device), positives] = False
    return F.cross_entropy(scores.float().masked_fill(others, float("-inf")), positives)


DUAL_ENCODER = DualEncoderLoss(
    "contrastive", lambda batch: contrastive_loss(batch.scores, batch.positives, batch.relevant)
)
