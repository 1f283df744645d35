"""Joint listwise training of retriever and re-ranker, with dynamic distillation (RocketQAv2)."""

from __future__ import annotations

from torch import Tensor

from gnnretrieval.errors import GnnRetrievalError


def joint_listwise_loss(scores: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    r"""The dual-encoder follows the cross-encoder over each query's list, and the cross-encoder the label.

    Ren et al. 2021 (`arXiv 2110.07367 <https://arxiv.org/abs/2110.07367>`_), §3.2:

    .. math::
        L = \sum_{p \in P_q} \tilde s_{de}(q, p) \log \frac{\tilde s_{de}(q, p)}{\tilde s_{ce}(q, p)}
            - \log \tilde s_{ce}(q, p^+), \qquad \tilde s = \mathrm{softmax}_{P_q}(s)

    Both models receive the gradient of both terms: the divergence also draws the cross-encoder to the dual-encoder.
    Unlike :func:`listwise_distillation_loss`, whose teacher is fixed, it needs the cross-encoder in every step, which
    costs a pass over all pairs of a batch.

    Args:
        scores: ``(B, L)`` similarity of each query to its list, scaled by its temperature; the positive is first.
        logits: ``(B, L)`` the cross-encoder's logits of the same pairs.
        mask: ``(B, L)`` bool, False at empty places of a list; values there are ignored.

    Returns:
        Mean over the queries that have at least two passages, a float32 scalar; 0 if there is none.

    Raises:
        GnnRetrievalError: The three tensors have different shapes.

    Example:
        >>> import torch
        >>> scores, logits = torch.tensor([[0.0, 0.0, 9.0]]), torch.tensor([[3.0, 1.0, 0.0]]).log()  # (1, 3)
        >>> loss = joint_listwise_loss(scores, logits, torch.tensor([[True, True, False]]))
        >>> round(float(loss), 4)  # 1/2 log(1/2 / 3/4) + 1/2 log(1/2 / 1/4) - log 3/4
        0.4315
    """
    if not scores.shape == logits.shape == mask.shape:
        shapes = ", ".join(str(tuple(given.shape)) for given in (scores, logits, mask))
        raise GnnRetrievalError(f"scores, logits and mask must have one shape (queries, list); these have {shapes}.")
    lists = mask.sum(-1) >= 2  # a single passage has share 1, whatever its score
    if not lists.any():
        return scores[:0].float().sum() + logits[:0].float().sum()  # 0 with a gradient
    absent = ~mask[lists]  # (b, L)
    dual, cross = (
        given[lists].float().masked_fill(absent, float("-inf")).log_softmax(-1) for given in (scores, logits)
    )
    differences = (dual - cross).masked_fill(absent, 0.0)  # -inf minus -inf would be NaN
    return ((dual.exp() * differences).sum(-1) - cross[:, 0]).mean()
