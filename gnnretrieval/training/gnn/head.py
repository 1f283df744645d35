"""Training of linear heads on the graph's labels; each step masks its own questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gnnretrieval.encoders.parallel_batches import map_batches
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Sides
from gnnretrieval.nn.passage_updates import BATCH, OTHERS
from gnnretrieval.nn.relevant_passages import RelevantPassages
from gnnretrieval.platform.threads import one_thread
from gnnretrieval.training.gnn.held_out import first_copies
from gnnretrieval.training.optimizers import linear_schedule

RATE, WARMUP = 1e-3, 0.1


class HeadTraining(NamedTuple):
    """How heads are trained; the fields are arguments of :func:`train_heads`."""

    steps: int
    sides: Sides = "both"
    mean: float = 0.0


def train_each(
    graph: MessageGraph,
    trainings: Sequence[HeadTraining],
    *,
    seed: int = 0,
    taught: Tensor | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> list[Heads]:
    """Train several heads, each on one processor, or one after the other on a GPU; arguments as :func:`train_heads`.

    Args:
        graph: Features and labels.
        trainings: How each is trained.
        seed: Seed of the order of the pairs, the same for all.
        taught: ``(n,)`` bool, True for queries to train on; None: all.
        advance: Called with the number of steps done.
    """
    stop, heads = Event(), list[Heads]()

    def train(how: HeadTraining) -> Heads:
        return train_heads(graph, how.steps, sides=how.sides, mean=how.mean, seed=seed, taught=taught, stop=stop)

    on_cpu = graph.device.type == "cpu"
    for how, trained in zip(
        trainings, map_batches(train, trainings, stop) if on_cpu else map(train, trainings), strict=True
    ):
        heads.append(trained)
        advance(how.steps)
    return heads


@one_thread()
def train_heads(
    graph: MessageGraph,
    steps: int,
    *,
    sides: Sides = "both",
    mean: float = 0.0,
    seed: int = 0,
    taught: Tensor | None = None,
    start: Heads | None = None,
    others: Tensor | None = None,
    stop: Event | None = None,
) -> Heads:
    """Train linear heads with a softmax (eq. 12) over the batch's passages and :data:`OTHERS` random labelled ones.

    Passages without labels are no candidates. They would be negatives only, and the heads might learn to rank them
    lower, also for the questions that they answer (benchmarks/results/head_candidates.md).

    A step masks only its own questions, and copies of them under other ids: with ``mean`` above 0 a positive is mixed
    with the mean of its *other* labelled questions. So every question is trained on in every epoch, over nearly the
    same graph as at search.

    Args:
        graph: Features and labels.
        steps: Number of updates, with 256 pairs each.
        sides: ``both``: one head for both sides; ``queries``: passages keep the identity; ``apart``: one head each.
        mean: Weight of the label mean during training; 0: no label mean.
        seed: Seed of the order of the pairs.
        taught: ``(n,)`` bool, True for queries to train on; None: all.
        start: Heads to go on from, of the same ``sides``; None: the identity.
        others: Rows of the passages that random candidates are drawn from; None: those with a label to train on.
        stop: Training ends early once it is set.

    Returns:
        The trained heads; ``start`` if there is no label.
    """
    generator = torch.Generator().manual_seed(seed)
    device = graph.device
    learn = slice(None) if taught is None else taught.to(device)[graph.labels[:, 0]]
    labels = graph.labels[learn]
    d = graph.passages.shape[1]
    begin = Heads.shared(torch.eye(d, device=device)) if start is None else start.to(device)
    head = begin.queries.clone().requires_grad_()
    heads = Heads(head, head if sides == "both" else begin.passages.clone().requires_grad_(sides == "apart"))
    if not len(labels):
        return Heads(*(side.detach() for side in heads))
    learned = {id(side): side for side in heads if side.requires_grad}
    optimizer = torch.optim.Adam(learned.values(), lr=RATE, fused=True)
    relevant, means = RelevantPassages(graph), _OtherMeans(graph, learn) if mean else None
    others = torch.unique(labels[:, 1]) if others is None else others
    epochs = -(-steps * BATCH // len(labels))
    order = torch.cat([torch.randperm(len(labels), generator=generator) for _ in range(epochs)]).to(device)
    for step in range(steps):
        if stop is not None and stop.is_set():
            break
        chosen = order[step * BATCH : (step + 1) * BATCH]
        batch = labels[chosen]  # (b, 2)
        queries = graph.queries[batch[:, 0]]  # (b, d)
        drawn = others[torch.randint(len(others), (OTHERS,), generator=generator).to(device)]
        rows, places = torch.unique(torch.cat([batch[:, 1], drawn]), return_inverse=True)  # (C,), (b + OTHERS,)
        column = places[: len(batch)]  # (b,)
        passages = graph.passages[rows] @ heads.passages.T  # (C, d)
        if means is not None:
            left_sums, left = means.sums(rows, chosen, column)  # (C, d), (C, 1)
            average = torch.where(left > 0.5, (left_sums / left.clamp(min=1)) @ heads.queries.T, passages)
            passages = torch.lerp(passages, average, mean)
        compared = graph.prepare(passages)  # (C, d)
        scores = graph.scale * graph.prepare(queries @ heads.queries.T) @ compared.T  # (b, C)
        also = relevant.among(batch[:, 0], rows)  # (b, C) other relevant passages, which are not negatives
        also[torch.arange(len(batch), device=device), column] = False
        loss = F.cross_entropy(scores.masked_fill(also, -torch.inf), column)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.param_groups[0]["lr"] = RATE * linear_schedule(step, steps, WARMUP)
        optimizer.step()
    return Heads(*(side.detach() for side in heads))


class _OtherMeans:
    """Sums of the labelled queries of passages, without the queries of a step and copies of these under other ids.

    Args:
        graph: Features and labels.
        learn: Which labels are learned from, an index of ``graph.labels``.
    """

    def __init__(self, graph: MessageGraph, learn: Tensor | slice) -> None:
        query, passage = graph.labels.T
        self._queries, self._counts = graph.queries, graph.label_counts
        self._sums = torch.zeros_like(graph.passages).index_add_(0, passage, graph.queries[query])  # (m, d)
        rows = np.arange(len(graph.queries))
        first = torch.from_numpy(first_copies(graph.queries.cpu().numpy(), rows)).to(graph.device)[query]  # (L,)
        keys = first * len(graph.passages) + passage
        _, places, counts = torch.unique(keys, return_inverse=True, return_counts=True)
        self._first, self._times = first[learn], counts[places].float()[learn]

    def sums(self, passages: Tensor, labels: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Sums ``(C, d)`` and numbers ``(C, 1)`` of the passages' other queries.

        Args:
            passages: ``(C,)`` rows.
            labels: ``(b,)`` labels of the step, as positions among those learned from.
            column: ``(b,)`` the position of each label's passage among ``passages``.
        """
        pairs = torch.stack([self._first[labels], column], dim=1)
        once, places = torch.unique(pairs, dim=0, return_inverse=True)  # a step may begin another epoch
        times = self._times.new_zeros(len(once)).scatter_(0, places, self._times[labels])  # (o,)
        query, row = once.T
        sums = self._sums[passages].index_add(0, row, -times[:, None] * self._queries[query])
        return sums, self._counts[passages].index_add(0, row, -times)[:, None]
