"""The choice of messages for passages and their training questions together."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gnnretrieval.baselines.dense import CHOICES
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, message_vectors, question_vectors
from gnnretrieval.training.gnn import judged as judged_questions
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import QUESTIONS, climb, first_ranks_of_scores
from gnnretrieval.training.gnn.question_ladder import climb_with_questions


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


def climbed(judged: Judged, start: Messages):
    return climb_with_questions(judged.measure, start, {}, steps=(), by_rank=judged.log_ranks)


def test_questions_are_kept_where_the_nearest_of_them_answers():
    graph, dev = graph_of_unlike_questions()
    judged = Judged.of(graph, {}, dev.numpy(), [[row] for row in range(60)])
    choice = climbed(judged, Messages(mean=0.1))
    assert choice.messages.questions in QUESTIONS
    assert choice.dev - judged.measure(Messages(mean=0.1)).mean() > 0.2
    assert choice.p < 0.01


def test_settings_that_were_tried_before_count_in_the_p_value():
    graph, dev = graph_of_unlike_questions()
    judged = Judged.of(graph, {}, dev.numpy(), [[row] for row in range(60)])
    before = climb(judged.measure, steps=(), by_rank=judged.log_ranks)
    after = climb_with_questions(judged.measure, Messages(), before.measured, steps=(), by_rank=judged.log_ranks)
    assert before.tried > 0
    assert after.tried == before.tried + climbed(judged, Messages()).tried


def test_none_are_kept_where_questions_mislead():
    graph, dev = graph_of_unlike_questions()
    wrong = graph._replace(labels=torch.stack([graph.labels[:, 0], graph.labels[:, 1].roll(8)], dim=1))
    dev = F.normalize(dev + 2 * graph.passages, dim=1)
    judged = Judged.of(wrong, {}, dev.numpy(), [[row] for row in range(60)])
    choice = climbed(judged, Messages())
    assert choice.messages == Messages()
    assert [rung.kept for rung in choice.rungs] == [False, False]


def test_the_climb_tries_the_baseline_of_heads_and_question_index():
    tried = []

    def measure(messages: Messages) -> np.ndarray:
        tried.append(messages)
        return np.full(10, messages.questions) + np.arange(10) * 1e-3

    baseline = CHOICES["linear-heads-apart+question-index"]
    climb_with_questions(measure, Messages(mean=0.3), {}, steps=sorted({one.steps for one in baseline if one.steps}))
    for setting in baseline:
        weight = min(QUESTIONS, key=lambda known: abs(known - setting.questions))
        if setting.questions:
            assert Messages(setting.steps, sides=setting.sides if setting.steps else "both", questions=weight) in tried
            assert abs(weight - setting.questions) < 1e-9


@pytest.mark.parametrize("kept", [judged_questions.KEPT, 0])
def test_ranks_are_those_of_several_vectors_a_passage(monkeypatch, kept):
    monkeypatch.setattr(judged_questions, "KEPT", kept)
    graph, dev = graph_of_unlike_questions()
    head = Messages(steps=1)
    heads = {head: Heads.shared(torch.eye(graph.passages.shape[1]) + 0.1 * torch.ones(graph.passages.shape[1]))}
    judged = Judged.of(graph, heads, dev.numpy(), [[row] for row in range(60)])
    seen = []
    for messages in (
        Messages(),
        Messages(mean=0.3, prior=-0.1, scaling=0.3),
        head._replace(mean=0.3),
        head._replace(prior=0.2),
    ):
        weighted = messages._replace(questions=0.35)  # not one of the weights that are tried
        given = (graph, heads[head] if messages.steps else None, messages)
        passages, questions = message_vectors(*given), question_vectors(*given)
        scores = judged.queries @ passages.T
        for query, passage in graph.labels.tolist():  # a passage scores by the best of several vectors
            vector = torch.lerp(passages[passage], questions[query], weighted.questions)
            scores[:, passage] = torch.maximum(scores[:, passage], judged.queries @ vector)
        seen.append(judged.first_ranks(weighted))
        assert np.array_equal(seen[-1], first_ranks_of_scores(scores, judged.relevant))
        assert not np.array_equal(seen[-1], judged.first_ranks(messages))
    assert len({tuple(ranks) for ranks in seen}) == 4
    assert list(judged.best) == ([head] if kept else [])
