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

    A query's other relevant passages are not negatives: the sum leaves them out. This loss needs labels only.
    :func:`pair_loss` also separates passages from each other; :func:`listwise_distillation_loss` and
    :func:`margin_mse_loss` learn from a teacher's scores.

    Args:
        scores: ``(B, C)`` similarity of each query to each candidate, scaled by its temperature.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True wherever the candidate is relevant to the query.

    Returns:
        Mean over the batch's rows, a float32 scalar. A query with several positives has a row for each. A row without
        negatives has loss 0.

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
