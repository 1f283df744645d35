"""Rejection: passages move away from queries that retrieved them without a label, by gradient steps on eq. 12."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gnnretrieval.nn.label_messages import MessageGraph

_QUERIES = 1024  # queries per block


def rejected(
    graph: MessageGraph, passages: Tensor, queries: Tensor, rounds: int, step_size: float
) -> tuple[Tensor, Tensor]:
    """Passages after rejection: each round moves them away from queries that retrieved them without a label.

    Args:
        graph: The edges.
        passages: ``z_p`` ``(m, d)``.
        queries: ``(n, d)``, in the same space.
        rounds: Number of rounds; each computes the attention again.
        step_size: ``η``.

    Returns:
        ``(m, d)`` passages, and the weight with which each query pushed each passage that it retrieved, ``η Σ_t π``
        ``(n, k)``; 0 for relevant passages.
    """
    m = len(passages)
    keys = graph.labels[:, 0] * m + graph.labels[:, 1]  # (L,) one number per labelled pair
    pushes, now, strength = torch.zeros_like(passages), passages, passages.new_zeros(graph.neighbors.shape)
    rows = torch.nonzero(graph.visible).ravel()
    for _ in range(rounds):
        # the attention is of the passages where they are now, and all rounds push from where they began
        outside = _labels_outside(graph, now, queries)  # (n,)
        for block in torch.split(rows, _QUERIES):
            neighbors, query = graph.neighbors[block], queries[block]  # (b, k), (b, d)
            logits = graph.scale * torch.einsum("bkd,bd->bk", now[neighbors], query)
            attention = torch.softmax(torch.cat([logits, outside[block, None]], dim=1), dim=1)[:, :-1]  # (b, k)
            attention = step_size * attention.masked_fill(torch.isin(block[:, None] * m + neighbors, keys), 0.0)
            strength[block] += attention
            for rank in range(neighbors.shape[1]):  # rank by rank: no (b, k, d) tensor of pushes
                pushes.index_add_(0, neighbors[:, rank], -attention[:, rank, None] * query)
        now = graph.prepare(passages + pushes)
    return now, strength


def _labels_outside(graph: MessageGraph, passages: Tensor, queries: Tensor) -> Tensor:
    """Log-sum-exp of the logits of the relevant passages that a query did not retrieve ``(n,)``; -inf if none."""
    query, passage = graph.labels.T
    outside = ~(graph.neighbors[query] == passage[:, None]).any(1)
    query, passage = query[outside], passage[outside]
    # in two steps, because a query may have any number of labels: the highest logit first, against overflow
    logits = queries.new_full((len(queries),), -torch.inf)
    scores = graph.scale * (passages[passage] * queries[query]).sum(1)
    highest = logits.scatter_reduce(0, query, scores, "amax")
    sums = torch.zeros_like(logits).index_add_(0, query, torch.exp(scores - highest[query]))
    outside_logits: Tensor = torch.where(sums > 0, highest + torch.log(sums), logits)
    return outside_logits
