"""Updates of passage vectors by all questions that want them or others: stochastic gradient steps on eq. 12."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gnnretrieval.nn.relevant_passages import RelevantPassages

if TYPE_CHECKING:
    from gnnretrieval.nn.label_messages import MessageGraph

BATCH = 256  # labels of a step
OTHERS = 512  # random labelled passages among its candidates
_ODD, _SALT, _FACTOR, _BITS = 2654435761, 974634893, 73244475, 0x7FFFFFFF  # of the hash


class Updated(NamedTuple):
    """Passages after some passes.

    Attributes:
        passages: ``z_p`` ``(m, d)``.
        lengths: By what they are to be multiplied for ``u_p`` ``(m,)``.
        pulls: Weight with which the query of each label pulled its passage, ``η Σ_t (1 - π)`` ``(L,)``.
    """

    passages: Tensor
    lengths: Tensor
    pulls: Tensor


@torch.no_grad()
def updated(
    graph: MessageGraph, passages: Tensor, queries: Tensor, passes: Collection[int], size: float
) -> dict[int, Updated]:
    r"""Passages after updates, by the number of passes over the labels.

    .. math::
        u_p \leftarrow u_p + \eta \sum_{q \in B} ([p \in L_q] - \pi_{qp})\, \widehat{H_q h_q}, \qquad
        z_p = \widehat{u_p}, \qquad
        \pi_{qp} = \mathrm{softmax}_{p \in C}(\tau\, z_p^\top \widehat{H_q h_q})

    A step takes a batch ``B`` of labels, and their passages and random labelled ones as candidates ``C``. Its queries
    pull their passages by what the softmax lacks, and push the other candidates by what these have too much. This is
    a gradient step on eq. 12 with respect to the passages. The mean of a passage's queries weighs them alike; here
    those weigh most that other passages still answer better. Passages without labels stay where they are.

    Labels and candidates come in the order of a hash of their rows, another one in each pass. So a label that is added
    or left out leaves the others in their order, and moves other passages little.

    Args:
        graph: The labels.
        passages: ``z_p`` ``(m, d)`` to begin from.
        queries: ``(n, d)``, in the same space.
        passes: Numbers of passes to return; 0: none.
        size: ``η``.
    """
    pulls = passages.new_zeros(len(graph.labels))
    made = {0: Updated(passages, passages.new_ones(len(passages)), pulls)}
    if not len(graph.labels):
        return dict.fromkeys(passes, made[0])
    relevant, labelled = RelevantPassages(graph), torch.unique(graph.labels[:, 1])
    moved, now, pulls = passages.clone(), passages.clone(), pulls.clone()
    most, window = max(passes, default=0), torch.arange(min(OTHERS, len(labelled)), device=graph.device)
    for done in range(1, most + 1):
        order = _shuffled(graph.labels[:, 0] * _ODD + graph.labels[:, 1], done)
        others = labelled[_shuffled(labelled, done)]
        for step, chosen in enumerate(torch.split(order, BATCH)):
            batch = graph.labels[chosen]  # (b, 2)
            asked = queries[batch[:, 0]]  # (b, d)
            drawn = others[(step * OTHERS + window) % len(others)]
            rows, places = torch.unique(torch.cat([batch[:, 1], drawn]), return_inverse=True)  # (C,), (b + OTHERS,)
            own = (torch.arange(len(batch), device=graph.device), places[: len(batch)])
            also = relevant.among(batch[:, 0], rows)  # (b, C) other relevant passages, which are not pushed
            also[own] = False
            scores = (graph.scale * asked @ now[rows].T).masked_fill_(also, -torch.inf)
            too_much = torch.softmax(scores, dim=1)  # (b, C)
            too_much[own] -= 1
            pulls[chosen] -= size * too_much[own]
            moved[rows] -= size * too_much.T @ asked
            now[rows] = graph.prepare(moved[rows])
        if done in passes:
            lengths = moved.norm(dim=1) if graph.normalize else torch.ones_like(made[0].lengths)
            is_last = done == most
            made[done] = Updated(now if is_last else now.clone(), lengths, pulls if is_last else pulls.clone())
    return {done: made[done] for done in passes}


def _shuffled(keys: Tensor, turn: int) -> Tensor:
    """Positions of keys in the order of their hash, another one in each turn."""
    mixed = (keys * _ODD + turn * _SALT) & _BITS
    for _ in range(2):  # the finalizer of a hash: each bit of the key changes each bit of the result
        mixed = ((mixed >> 16) ^ mixed) * _FACTOR & _BITS
    return ((mixed >> 16) ^ mixed).argsort(stable=True)


def pull_of_another(
    graph: MessageGraph, passages: Tensor, passage: int, query: Tensor, passes: int, size: float
) -> float:
    """Weight with which one more query of a passage would pull it, from where the updates ended.

    Args:
        graph: The labels.
        passages: ``z_p`` ``(m, d)`` after the updates.
        passage: Row of the query's passage.
        query: ``(d,)``, in the same space.
        passes: Passes; the softmax is the same in each.
        size: ``η``.

    Returns:
        The weight; 0 if no passage has a label, so that none competes.
    """
    labelled = torch.unique(graph.labels[:, 1])
    if not len(labelled):
        return 0.0
    drawn = torch.randint(len(labelled), (BATCH + OTHERS,), generator=torch.Generator().manual_seed(0))
    candidates = torch.unique(labelled[drawn.to(graph.device)])
    candidates = torch.cat([candidates.new_tensor([passage]), candidates[candidates != passage]])
    share = torch.softmax(graph.scale * passages[candidates] @ query, dim=0)[0]
    return passes * size * (1 - float(share))
