"""The weight of a passage's nearest training question, chosen on dev."""

import numpy as np
import pytest
import torch
from rotated_graph import rotated_graph
from torch.nn import functional as F

from gnnretrieval.nn.label_messages import MessageGraph, Messages
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.question_weight import WEIGHTS, choose_question_weight


def graph_of_unlike_questions(count: int = 60, d: int = 16) -> tuple[MessageGraph, torch.Tensor]:
    """Each passage has two questions in random directions, and dev questions repeat one of them with noise."""
    generator = torch.Generator().manual_seed(2)
    passages, questions = (F.normalize(torch.randn(n, d, generator=generator), dim=1) for n in (count, 2 * count))
    rows = torch.arange(2 * count)
    graph = MessageGraph(
        passages,
        questions,
        torch.zeros(2 * count, 1, dtype=torch.int64),
        torch.stack([rows, rows // 2], dim=1),
        torch.ones(2 * count, dtype=torch.bool),
        True,
        20.0,
    )
    return graph, F.normalize(questions[::2] + 0.1 * torch.randn(count, d, generator=generator), dim=1)


def test_a_weight_is_kept_where_the_nearest_question_answers():
    graph, dev = graph_of_unlike_questions()
    judged = Judged.of(graph, {}, dev.numpy(), [[row] for row in range(60)])
    chosen = choose_question_weight([judged], Messages(mean=0.1))
    assert chosen.kept
    assert chosen.weight in WEIGHTS
    assert chosen.gain > 0.2
    assert chosen.described()["weight"] == chosen.weight
    assert f"--nearest-questions {chosen.weight:g}" in chosen.line()


def test_none_is_kept_where_questions_mislead():
    graph, dev = graph_of_unlike_questions()
    wrong = graph._replace(labels=torch.stack([graph.labels[:, 0], graph.labels[:, 1].roll(8)], dim=1))
    dev = F.normalize(dev + 2 * graph.passages, dim=1)
    judged = Judged.of(wrong, {}, dev.numpy(), [[row] for row in range(60)])
    chosen = choose_question_weight([judged], Messages())
    assert not chosen.kept
    assert chosen.described()["weight"] == 0
    assert chosen.line().endswith("left out")


@pytest.mark.parametrize("messages", [Messages(), Messages(mean=0.3, prior=-0.1, scaling=0.3)])
def test_weight_zero_ranks_as_the_vectors_alone(messages):
    graph = rotated_graph()
    judged = Judged.of(graph, {}, graph.queries.numpy(), [[row] for row in range(40)])
    ranks = judged.ranks_beside_questions(messages, (0.0, 1.0))
    assert np.array_equal(ranks[0], judged.first_ranks(messages))
    assert (ranks[1] == 1).all()  # each is its own nearest question
