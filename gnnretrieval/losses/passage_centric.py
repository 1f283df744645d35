"""The passage-centric loss over a batch's candidates (PAIR, eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnretrieval.losses.contrastive import contrastive_loss


def passage_centric_loss(scores: Tensor, passage_scores: Tensor, positives: Tensor, relevant: Tensor) -> Tensor:
    r"""Negative log-likelihood of the query among what its positive lies close to (Ren et al. 2021, PAIR, eq. 5).

    .. math::
        L_P = -\log \frac{\exp s(p^+, q)}{\exp s(p^+, q) + \sum_{p^-} \exp s(p^+, p^-)}

    It pushes the negatives away from the positive rather than from the query (eq. 4), and differs from
    :func:`contrastive_loss` (eq. 3) in the sum alone. Queries are not told from each other, so on its own it trains no
    retriever: :func:`pair_loss` joins the two. It costs one more product of embeddings, positives with candidates, and
    asks for one encoder of queries and passages: both similarities have to live in one space.

    Args:
        scores: ``(B, C)`` similarity of each query to each candidate, scaled by its temperature.
        passage_scores: ``(B, C)`` similarity of each query's positive to each candidate, scaled alike.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True wherever the candidate is relevant to the query: it is no negative.

    Returns:
        The mean over the pairs of the batch, float32. A query without a negative has no loss.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])  # (1, 3)
        >>> passage_scores = torch.tensor([[9.0, 1.5, 0.5]])  # (1, 3), first the positive with itself
        >>> relevant = torch.tensor([[True, False, False]])
        >>> loss = passage_centric_loss(scores, passage_scores, torch.tensor([0]), relevant)
        >>> round(float(loss), 4)  # -log(exp(2) / (exp(2) + exp(1.5) + exp(0.5)))
        0.6041
    """
    own = torch.zeros_like(relevant)
    own[torch.arange(len(positives), device=own.device), positives] = True
    return contrastive_loss(torch.where(own, scores, passage_scores), positives, relevant)
