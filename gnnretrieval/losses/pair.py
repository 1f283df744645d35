"""PAIR's loss: a weighted sum of the contrastive and the passage-centric loss (eq. 6)."""

from __future__ import annotations

from torch import Tensor

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses.contrastive import contrastive_loss
from gnnretrieval.losses.dual_encoder_loss import DualEncoderLoss
from gnnretrieval.losses.passage_centric import passage_centric_loss


def pair_loss(
    scores: Tensor, passage_scores: Tensor, positives: Tensor, relevant: Tensor, alpha: float = 0.1
) -> Tensor:
    r"""Weighted sum of the contrastive and the passage-centric loss (Ren et al. 2021, PAIR, §3.2, eq. 6).

    .. math::
        L = (1 - \alpha) L_Q + \alpha L_P

    ``α = 0`` is exactly :func:`contrastive_loss`, ``α = 1`` exactly :func:`passage_centric_loss`. It costs as much as
    the latter. The paper pre-trains with it on pseudo-labels at ``α = 0.1`` and fine-tunes with the contrastive loss.

    Args:
        scores: ``(B, C)`` similarity of each query to each candidate, scaled by its temperature.
        passage_scores: ``(B, C)`` similarity of each query's positive to each candidate, with the same scale.
        positives: ``(B,)`` int64, column of each query's positive.
        relevant: ``(B, C)`` bool, True wherever the candidate is relevant to the query and so not a negative.
        alpha: ``α``, from 0 to 1.

    Returns:
        Mean over the batch's rows, a float32 scalar.

    Raises:
        GnnRetrievalError: ``alpha`` is not between 0 and 1.

    Example:
        >>> import torch
        >>> scores, passage_scores = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[9.0, 1.5, 0.5]])  # (1, 3)
        >>> relevant = torch.tensor([[True, False, False]])
        >>> loss = pair_loss(scores, passage_scores, torch.tensor([0]), relevant, alpha=0.1)
        >>> round(float(loss), 4)  # 0.9 * 0.4076 + 0.1 * 0.6041
        0.4273
    """
    if not 0 <= alpha <= 1:
        raise GnnRetrievalError(f"alpha is {alpha}; it is the share of the passage-centric loss: give 0 to 1.")
    query_centric = contrastive_loss(scores, positives, relevant)
    passage_centric = passage_centric_loss(scores, passage_scores, positives, relevant)
    return (1 - alpha) * query_centric + alpha * passage_centric


DUAL_ENCODER = DualEncoderLoss(
    "pair", lambda batch: pair_loss(batch.scores, batch.between(), batch.positives, batch.relevant, batch.alpha)
)
