"""MarginMSE: regression on the teacher's margins between a query's positive and its negatives."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses.dual_encoder_loss import DualEncoderLoss


def margin_mse_loss(scores: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    r"""Squared error of the margins between positive and negative (Hofstätter et al. 2020, arXiv 2010.02666, §3.1).

    .. math::
        L = \left((s(q, p^+) - s(q, p^-)) - (t(q, p^+) - t(q, p^-))\right)^2

    Only differences of scores count, so a constant offset does not matter; but the student's scores must be able to
    reach the scale of the teacher's. Unlike :func:`listwise_distillation_loss` it weighs all negatives alike, even
    those that the teacher finds improbable. Large errors, squared, count most. It uses a query's own list only, and
    each passage of the list needs a teacher's score.

    Args:
        scores: ``(B, L)`` similarity of each query to its positive (first) and to its negatives.
        teacher: ``(B, L)`` the teacher's logits (not probabilities) of the same pairs; they receive no gradient.
        mask: ``(B, L)`` bool, False at empty places of a list; scores there are ignored.

    Returns:
        Mean over the pairs of a positive and one of its negatives, a float32 scalar; 0 if there is none.

    Raises:
        GnnRetrievalError: The three tensors have different shapes.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[3.0, 1.0, 2.0]])  # (1, 3): margins 2 and 1
        >>> teacher = torch.tensor([[5.0, 2.0, 1.0]])  # (1, 3): margins 3 and 4
        >>> loss = margin_mse_loss(scores, teacher, torch.ones(1, 3, dtype=torch.bool))
        >>> float(loss)  # ((2 - 3)² + (1 - 4)²) / 2
        5.0
    """
    if not scores.shape == teacher.shape == mask.shape:
        shapes = ", ".join(str(tuple(given.shape)) for given in (scores, teacher, mask))
        raise GnnRetrievalError(f"scores, teacher and mask must have one shape (queries, list); these have {shapes}.")
    pairs = mask[:, :1] & mask[:, 1:]  # (B, L - 1)
    if not pairs.any():
        return scores[:0].float().sum()  # 0 with a gradient
    margins, targets = ((given[:, :1] - given[:, 1:])[pairs] for given in (scores.float(), teacher.detach().float()))
    return F.mse_loss(margins, targets)  # both (number of pairs,)


DUAL_ENCODER = DualEncoderLoss("margin-mse", lambda batch: margin_mse_loss(*batch.lists()), is_distilled=True)
