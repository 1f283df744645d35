"""Dense baselines, by hand-worked examples and against the GNN-encoder's own messages."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gnnretrieval.baselines import DENSE, dense
from gnnretrieval.baselines.dense import (
    CHOICES,
    DenseBaseline,
    DenseSetting,
    choose_dense,
    lowest_mean,
    measure_dense,
    prepared,
    score,
)
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.nn.label_messages import Mapped, MessageGraph, Messages, message_vectors
from gnnretrieval.training.gnn.head import Heads, train_heads

ASKED = torch.tensor([[0.6, 0.8]])


def graph_of() -> MessageGraph:
    """Three passages and two queries in the plane; both queries want passage 0."""
    passages = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    queries = torch.tensor([[0.8, 0.6], [0.0, 1.0]])
    labels = torch.tensor([[0, 0], [1, 0]])
    return MessageGraph(
        passages, queries, torch.tensor([[0, 2], [1, 2]]), labels, torch.ones(2, dtype=torch.bool), True, 2.0
    )


def scores_of(setting: DenseSetting, heads: Heads | None = None) -> list[float]:
    graph = graph_of()
    return score(graph, prepared(Mapped(graph, heads), setting), setting, ASKED)[0].tolist()


def test_a_setting_of_zeros_is_the_dual_encoder():
    assert scores_of(DenseSetting()) == pytest.approx([0.6, 0.8, 1.0])


def test_a_question_index_mixes_in_the_best_of_a_passage_and_its_training_questions():
    """Passage 0 has 0.6; its questions 0.48 + 0.48 and 0.8. The others have no questions and stay."""
    assert scores_of(DenseSetting(questions=1.0)) == pytest.approx([0.96, 0.8, 1.0])
    assert scores_of(DenseSetting(questions=0.5)) == pytest.approx([0.78, 0.8, 1.0])


def test_a_prior_changes_the_scores_of_passages_with_training_questions():
    assert scores_of(DenseSetting(prior=-0.5)) == pytest.approx([0.3, 0.8, 1.0])


def test_local_scaling_is_that_of_the_gnn_encoder():
    vectors = message_vectors(graph_of(), None, Messages(scaling=0.5))
    assert scores_of(DenseSetting(scaling=0.5)) == pytest.approx((ASKED @ vectors.T)[0].tolist())
    assert scores_of(DenseSetting(scaling=0.5)) != pytest.approx(scores_of(DenseSetting()))


def test_by_clicks_dev_ranks_what_was_shown_and_counts_by_weights():
    """The query scores 0.6, 0.8 and 1: passage 0 is the third of all, the second of the shown ones."""
    asked, relevant = ASKED.repeat(2, 1), [[0], [1]]
    plain = measure_dense(Mapped(graph_of(), None), [DenseSetting()], asked, relevant)
    assert plain.tolist() == [[3, 2]]
    clicked = ClickedQuestions(relevant, [[0, 1], None], np.array([3.0, 1.0]))
    ranks = measure_dense(Mapped(graph_of(), None), [DenseSetting()], asked, relevant, clicked)
    assert ranks.tolist() == [[2, 2]]


def test_by_clicks_each_kind_of_question_has_its_weighted_mean():
    """The first kind is right in 3 of 4 parts of its weight, the second, with heavy weights, in a half."""
    clicked = ClickedQuestions([[0]] * 4, [None] * 4, np.array([3.0, 1.0, 10.0, 10.0]))
    values, parts = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0, 0, 1, 1])
    assert lowest_mean(values, parts, clicked) == pytest.approx(0.5)
    assert lowest_mean(values, np.zeros(4, dtype=int), clicked) == pytest.approx(13 / 24)


def test_heads_of_either_side_are_applied_to_that_side():
    heads = Heads(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2))  # queries are mirrored
    assert scores_of(DenseSetting(steps=1, sides="queries"), heads) == pytest.approx([0.8, 0.6, 0.96])


def test_head_and_label_mean_are_those_of_the_gnn_encoder():
    """The baseline is a special case of the model."""
    graph, head = graph_of(), torch.tensor([[1.0, 0.3], [0.0, 1.0]])
    setting = DenseSetting(steps=1, mean=0.4)
    ours = score(graph, prepared(Mapped(graph, Heads.shared(head)), setting), setting, ASKED)[0]
    vectors = message_vectors(graph, Heads.shared(head), Messages(steps=1, mean=0.4))
    theirs = F.normalize(ASKED @ head.T) @ F.normalize(vectors @ torch.linalg.inv(head)).T
    assert ours.argsort().tolist() == (ASKED @ vectors.T)[0].argsort().tolist()
    torch.testing.assert_close(ours, theirs[0])


def test_heads_on_queries_alone_leave_passages_as_they_are():
    graph = graph_of()._replace(labels=torch.tensor([[0, 0], [1, 2]]))
    queries = train_heads(graph, 5, sides="queries")
    apart = train_heads(graph, 5, sides="apart")
    assert queries.passages.equal(torch.eye(2))
    assert not queries.queries.equal(torch.eye(2))
    assert not apart.passages.equal(torch.eye(2))
    assert not apart.passages.equal(apart.queries)


def test_a_run_ranks_by_score_and_reads_no_deeper():
    graph = graph_of()
    ranked = DenseBaseline(DenseSetting(questions=1.0), 0.0, graph, None).run(["q"], ASKED.numpy(), ["a", "b", "c"], 2)
    assert [(hit.passage_id, pytest.approx(hit.score)) for hit in ranked["q"]] == [("c", 1.0), ("a", 0.96)]


def test_each_baseline_takes_what_dev_ranks_best_and_the_dual_encoder_where_nothing_gains(monkeypatch):
    monkeypatch.setattr(dense, "STEPS", ())
    graph = graph_of()
    parts = np.zeros(1, dtype=np.int64)
    names = ("label-mean", "question-index", "label-prior")
    wanted = choose_dense(graph, graph, np.array([[0.7, 0.7]]), [[0]], parts, names=names)
    assert wanted["label-mean"].setting.mean > 0
    assert wanted["label-mean"].dev == 1.0
    nothing = choose_dense(graph, graph, np.array([[0.6, 0.8]]), [[2]], parts, names=names)
    assert {name: one.setting for name, one in nothing.items()} == dict.fromkeys(names, DenseSetting())


def test_a_prior_is_not_chosen_by_questions_that_were_held_out():
    graph = graph_of()
    parts = np.zeros(1, dtype=np.int64)
    found = choose_dense(graph, graph, ASKED.numpy(), [[0]], parts, priors=False, names=CHOICES)
    assert {*found} == {name for name in CHOICES if "prior" not in name}


def test_of_several_kinds_of_dev_question_the_worst_counts():
    """Kind 0 wants passage 0, which the label mean finds; kind 1 wants passage 2, which it takes from."""
    graph = graph_of()
    asked, relevant = np.array([[0.45, 0.89], [0.5, 0.87]]), [[0], [2]]
    alone = choose_dense(graph, graph, asked[:1], relevant[:1], np.zeros(1, dtype=int), names=("label-mean",))
    both = choose_dense(graph, graph, asked, relevant, np.array([0, 1]), names=("label-mean",))
    assert (alone["label-mean"].setting.mean, alone["label-mean"].dev) == (0.9, 1.0)
    assert both["label-mean"].setting.mean < 0.9
    assert both["label-mean"].dev == 0.5


def test_every_name_has_its_settings():
    assert tuple(CHOICES) == DENSE


def test_every_baseline_may_stay_the_dual_encoder():
    assert all(DenseSetting() in [one._replace(sides="both") for one in choices] for choices in CHOICES.values())
