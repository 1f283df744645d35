"""The passage-centric loss over a batch's candidates (PAIR, eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnretrieval.losses.contrastive import contrastive_loss


def passage_centric_loss(scores: Tensor, passage_scores: Tensor, positives: Tensor, relevant: Tensor) -> Tensor:
    r"""Negative log-likelihood of the query among the negatives, seen from its positive (Ren et al. 2021, PAIR, eq. 5).

    .. math::
        L_P = -\log \frac{\exp s(p^+, q)}{\exp s(p^+, q) + \sum_{p^-} \exp s(p^+, p^-)}

    It pushes negatives away from the positive passage, not from the query (eq. 4). Only the sum differs from
    :func:`contrastive_loss` (eq. 3). It does not separate queries from each other, so it cannot train a retriever
    alone: :func:`pair_loss` adds it to the contrastive loss. It costs one more product of embeddings (positives with
    candidates) and needs one encoder for queries and passages, because both similarities must share a space.

    Args:
        scores: ``(B, C)`` similarity of each query to each candidate, scaled by its temperature.
        passage_scores: ``(B, C)`` similarity of each query's positive to each candidate, with the same scale.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True wherever the candidate is relevant to the query and so not a negative.

    Returns:
        Mean over the batch's rows, a float32 scalar. A row without negatives has loss 0.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])  # (1, 3)
        >>> passage_scores = torch.tensor([[9.0, 1.5, 0.5]])  # (1, 3), first the positive with itself
        >>> relevant = torch.tensor([[True, False, False]])
        >>> loss = passage_centric_loss(scores, passage_scores, torch.tensor([0]), relevant)
        >>> round(float(loss), 4)  # -log(exp(2) / (exp(2) + exp(1.5) + exp(0.5)))
        0.6041
    """
    own = torch.zeros_like(relevant)  # (B, C), True at each query's positive
    own[torch.arange(len(positives), device=own.device), positives] = True
    return contrastive_loss(torch.where(own, scores, passage_scores), positives, relevant)
