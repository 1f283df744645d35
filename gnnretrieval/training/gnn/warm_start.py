"""A warm start with layer = linear: the head goes on learning from new labels, and the messages keep their settings."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.nn.label_messages import MessageGraph
from gnnretrieval.training.gnn.head import train_head
from gnnretrieval.training.gnn.messages import TrainedMessages

REPLAY = 3.0  # old labels that are trained on again, for each new one


def continue_messages(
    graph: MessageGraph, start: TrainedMessages, fresh: NDArray[np.bool_], *, seed: int = 0, replay: float = REPLAY
) -> TrainedMessages:
    """Train the head of ``start`` further, on the labels of new queries and on a sample of the others.

    The sample keeps the head from forgetting (experience replay, Rolnick et al. 2019). A label is passed over as often
    as in the training from scratch, so a hundredth of new labels takes about a twenty-fifth of its steps. The messages
    keep their settings; the label means follow from the graph. Without a head nothing is trained.

    Args:
        graph: The graph, with the labels of old and new queries.
        start: What was trained before.
        fresh: ``(n,)`` bool, True for queries whose labels are new or have changed.
        seed: Seed of the sample and of the order of the labels.
        replay: Labels of other queries for each of a fresh query.
    """
    if start.head is None:
        return start
    of_fresh = torch.from_numpy(fresh)[graph.labels[:, 0]]  # (L,)
    rng = np.random.default_rng([seed, 0, 7])
    others = np.unique(graph.labels[~of_fresh, 0].numpy())
    wanted = min(len(others), round(replay * int(fresh.sum())))
    taught = fresh.copy()
    taught[rng.permutation(others)[:wanted]] = True
    labels = int(torch.from_numpy(taught)[graph.labels[:, 0]].sum())
    if not int(of_fresh.sum()):
        return start
    messages = start.messages
    steps = max(1, round(messages.steps * labels / len(graph.labels)))
    head = train_head(
        graph,
        steps,
        mean=messages.trained_mean,
        seed=seed,
        taught=torch.from_numpy(taught),
        start=start.head,
    )
    return TrainedMessages(head, messages)
