"""Messages along label edges and hard-negative edges, under one linear head."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_QUERIES = 1024  # queries a block


class MessageGraph(NamedTuple):
    """The node features and edges that messages go along, in memory.

    Attributes:
        passages: ``h_p`` ``(m, d)`` float32, as they are compared.
        queries: ``h_q`` ``(n, d)`` float32, as they are compared.
        neighbors: ``(n, k)`` passages that each query retrieved.
        labels: ``(L, 2)`` relevant (query row, passage row) pairs of visible queries.
        visible: ``(n,)`` True for queries that are in the graph.
        normalize: Whether vectors are compared at length 1 (cosine).
        scale: Factor on the similarity in a softmax.
    """

    passages: Tensor
    queries: Tensor
    neighbors: Tensor
    labels: Tensor
    visible: Tensor
    normalize: bool
    scale: float

    def prepare(self, vectors: Tensor) -> Tensor:
        """Vectors ``(…, d)`` as they are compared."""
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def without(self, hidden: Tensor) -> MessageGraph:
        """The same without some queries ``(n,)``: neither their labels nor what they retrieved is heard."""
        return self._replace(labels=self.labels[~hidden[self.labels[:, 0]]], visible=self.visible & ~hidden)

    @property
    def label_counts(self) -> Tensor:
        """Visible queries labelled with each passage ``(m,)``."""
        return torch.bincount(self.labels[:, 1], minlength=len(self.passages)).float()


class Messages(NamedTuple):
    """What is added to a passage, and how both sides are projected. All zero is the dual-encoder.

    Attributes:
        steps: Steps that the head was trained for; 0: the head is the identity.
        mean: ``w``: weight of the mean of a passage's labelled queries.
        rounds: How often queries reject passages.
        step_size: ``η`` of one round.
        prior: Share by which the vectors of passages with labelled queries are made longer, or shorter below 0.
        trained_mean: ``w`` while the head was trained.
    """

    steps: int = 0
    mean: float = 0.0
    rounds: int = 0
    step_size: float = 0.0
    prior: float = 0.0
    trained_mean: float = 0.0


def message_vectors(graph: MessageGraph, head: Tensor | None, messages: Messages) -> Tensor:
    r"""Passage vectors after all messages ``(m, d)``, to be compared with plain query vectors by dot product.

    .. math::
        x_p &= h_p + w \Bigl(\tfrac{1}{|L_p|} \sum_{q \in L_p} h_q - h_p\Bigr), \qquad z_p = \widehat{H x_p} \\
        z_p &\leftarrow \widehat{z_p^{(0)} - \eta \sum_{t} \sum_{q \in N_p \setminus L_p} \pi_{qp}^{(t)}
        \widehat{H h_q}},
        \qquad \pi_{qp} = \mathrm{softmax}_{p \in N_q \cup L_q}(\tau\, z_p^\top \widehat{H h_q}) \\
        v_p &= (1 + c\,[L_p \ne \emptyset])\; H^\top z_p

    The label mean is one hop of uniform attention over label edges. A rejection round is attention that each query
    spreads over its passages: those that it retrieved and that are not relevant to it move away from it. This is a
    gradient step on eq. 12 with respect to the passages. :math:`(Hq)^\top z_p = q^\top (H^\top z_p)`, so that the
    head is folded into the passage vectors, and a question costs what it did.

    Args:
        graph: Features and edges.
        head: ``H`` ``(d, d)``; None: the identity.
        messages: What is sent.
    """
    vectors, _ = _projected(graph, head, messages)
    folded = vectors if head is None else vectors @ head
    if messages.prior:
        folded = folded * (1 + messages.prior * (graph.label_counts > 0).float())[:, None]
    return folded


def rejections(graph: MessageGraph, head: Tensor | None, messages: Messages) -> Tensor:
    """How strongly each query pushed away each passage that it retrieved: ``η Σ_t π`` ``(n, k)``."""
    return _projected(graph, head, messages)[1]


def _projected(graph: MessageGraph, head: Tensor | None, messages: Messages) -> tuple[Tensor, Tensor]:
    """``z_p`` after all messages ``(m, d)``, and what :func:`rejected` says of strengths ``(n, k)``."""
    mixed = label_mean(graph, messages.mean)
    if head is None:
        passages, queries = graph.prepare(mixed), graph.queries
    else:
        passages, queries = graph.prepare(mixed @ head.T), graph.prepare(graph.queries @ head.T)
    return rejected(graph, passages, queries, messages.rounds, messages.step_size)


def label_mean(graph: MessageGraph, weight: float) -> Tensor:
    """Passages mixed with the mean of their labelled queries ``(m, d)``; a passage without any stays as it is."""
    if not weight:
        return graph.passages
    sums = torch.zeros_like(graph.passages).index_add_(0, graph.labels[:, 1], graph.queries[graph.labels[:, 0]])
    counts = graph.label_counts[:, None]
    mean = torch.where(counts > 0, sums / counts.clamp(min=1), graph.passages)
    return torch.lerp(graph.passages, mean, weight)


def rejected(
    graph: MessageGraph, passages: Tensor, queries: Tensor, rounds: int, step_size: float
) -> tuple[Tensor, Tensor]:
    """Passages after each query pushed away, ``rounds`` times, what it retrieved and did not want.

    Args:
        graph: The edges.
        passages: ``z_p`` ``(m, d)``.
        queries: ``(n, d)``, in the same space.
        rounds: How often; attention is computed again each time.
        step_size: ``η``.

    Returns:
        ``(m, d)`` passages, and how strongly each query pushed each passage it retrieved: ``η Σ_t π`` ``(n, k)``.
    """
    m = len(passages)
    keys = graph.labels[:, 0] * m + graph.labels[:, 1]
    pushes, now, strength = torch.zeros_like(passages), passages, torch.zeros(graph.neighbors.shape)
    rows = torch.nonzero(graph.visible).ravel()
    for _ in range(rounds):
        outside = _labels_outside(graph, now, queries)  # (n,)
        for block in torch.split(rows, _QUERIES):
            found, asked = graph.neighbors[block], queries[block]  # (b, k), (b, d)
            logits = graph.scale * torch.einsum("bkd,bd->bk", now[found], asked)
            attention = torch.softmax(torch.cat([logits, outside[block, None]], dim=1), dim=1)[:, :-1]
            attention = step_size * attention.masked_fill(torch.isin(block[:, None] * m + found, keys), 0.0)
            strength[block] += attention
            for rank in range(found.shape[1]):
                pushes.index_add_(0, found[:, rank], -attention[:, rank, None] * asked)
        now = graph.prepare(passages + pushes)
    return now, strength


def _labels_outside(graph: MessageGraph, passages: Tensor, queries: Tensor) -> Tensor:
    """Logit that stands for the relevant passages a query did not retrieve ``(n,)``; minus infinity for none."""
    query, passage = graph.labels.T
    outside = ~(graph.neighbors[query] == passage[:, None]).any(1)
    query, passage = query[outside], passage[outside]
    logits = torch.full((len(queries),), -torch.inf)
    scores = graph.scale * (passages[passage] * queries[query]).sum(1)
    highest = logits.scatter_reduce(0, query, scores, "amax")
    sums = torch.zeros(len(queries)).index_add_(0, query, torch.exp(scores - highest[query]))
    outside_logits: Tensor = torch.where(sums > 0, highest + torch.log(sums), logits)
    return outside_logits
