"""Questions that settings are measured on: cross-validated ones, and those whose labels are clicks."""

from itertools import product

import numpy as np
import pytest
import torch
from rotated_graph import rotated_graph

from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.nn.label_messages import MessageGraph, Messages
from gnnretrieval.training.gnn import judged
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.judged import Judged, cross_validated, questions_beside
from gnnretrieval.training.gnn.ladder import reciprocal_ranks


def of_dev(graph: MessageGraph, rows: list[int]) -> Judged:
    return Judged.of(graph, {}, graph.queries[rows].numpy(), [[row] for row in rows])


def test_cross_validated_questions_are_measured_where_nothing_knows_them(monkeypatch):
    """A fold lacks its own questions, each is asked once, and heads go over the others as often as over all."""
    graph = rotated_graph()
    hidden = torch.arange(40) < 10
    dev = of_dev(graph.without(hidden), list(range(10)))
    taught = torch.arange(40) % 2 == 0
    folds = cross_validated(graph.without(hidden), dev, (4,), 0, taught)
    asked = [row for fold in folds for (row,) in fold.relevant]
    assert sorted(asked) == [row for row in range(10, 40) if row % 2 == 0]
    for fold in folds:
        rows = [row for (row,) in fold.relevant]
        assert not fold.graph.visible[rows].any()
        assert not torch.isin(fold.graph.labels[:, 0], torch.tensor(rows)).any()
        torch.testing.assert_close(fold.queries, graph.queries[rows])
        assert {(head.trained_mean, head.sides) for head in fold.heads} == {*product((0.0, 0.2), ("both", "apart"))}
        for head, its in fold.heads.items():
            expected = train_heads(fold.graph, 3, sides=head.sides, mean=head.trained_mean, taught=taught)
            assert all(map(torch.equal, its, expected))


def copied_graph(copies: int) -> MessageGraph:
    """Each training question of a graph of 40 is there under several ids, side by side."""
    graph = rotated_graph()
    rows = torch.arange(40).repeat_interleave(copies)
    labels = torch.stack([torch.arange(40 * copies), rows], dim=1)
    visible = torch.ones(40 * copies, dtype=torch.bool)
    return graph._replace(queries=graph.queries[rows], neighbors=graph.neighbors[rows], labels=labels, visible=visible)


def test_copies_of_a_question_are_hidden_with_it_and_judged_once():
    """A copy that stays in the graph would give the answer away, and copies would count as evidence of their own."""
    graph = copied_graph(3)
    hidden = torch.arange(120) < 30
    inside, taught = graph.without(hidden), torch.ones(120, dtype=torch.bool)
    dev = Judged.of(inside, {}, graph.queries[:30:3].numpy(), [[row] for row in range(10)])
    folds = cross_validated(inside, dev, (4,), 0, taught)
    assert sorted(row for fold in folds for (row,) in fold.relevant) == list(range(10, 40))
    for fold in folds:
        own = torch.tensor([row for (row,) in fold.relevant])
        assert not torch.isin(fold.graph.labels[:, 1], own).any()
    chosen, asked, its = questions_beside(inside, dev, 0, taught)
    assert len({row for (row,) in its.relevant}) == len(its.relevant) == chosen.sum() / 3
    torch.testing.assert_close(its.queries, inside.queries[asked])
    assert not torch.isin(its.graph.labels[:, 1], torch.tensor([row for (row,) in its.relevant])).any()


def test_copies_that_may_not_be_used_are_hidden_too():
    """The dual-encoder has learned from a copy under another id: it is not asked, and would give the answer away."""
    graph = copied_graph(2)
    hidden = torch.arange(80) < 20
    inside, taught = graph.without(hidden), torch.arange(80) % 2 == 1
    dev = Judged.of(inside, {}, graph.queries[:20:2].numpy(), [[row] for row in range(10)])
    folds = cross_validated(inside, dev, (4,), 0, taught)
    assert sorted(row for fold in folds for (row,) in fold.relevant) == list(range(10, 40))
    chosen, asked, its = questions_beside(inside, dev, 0, taught)
    assert (asked % 2).all()
    assert len(its.relevant) == chosen.sum() / 2
    for part in (*folds, its):
        own = torch.tensor([row for (row,) in part.relevant])
        assert not torch.isin(part.graph.labels[:, 1], own).any()


def test_questions_that_the_dual_encoder_learned_from_are_trained_on_and_not_judged(monkeypatch):
    """It ranks them better than new ones, so that any change would look like a loss."""
    graph = rotated_graph()
    hidden = torch.arange(40) < 10
    inside, taught = graph.without(hidden), torch.ones(40, dtype=torch.bool)
    dev, new = of_dev(inside, list(range(10))), np.arange(40) % 2 == 0
    folds = cross_validated(inside, dev, (4,), 0, taught, may_join=new)
    assert sorted(row for fold in folds for (row,) in fold.relevant) == list(range(10, 40, 2))
    for fold in folds:
        expected = train_heads(fold.graph, 3)  # the odd rows too
        assert torch.equal(fold.heads[Messages(steps=4)].queries, expected.queries)
    monkeypatch.setattr(judged, "BESIDE", 0.5)
    chosen, asked, _ = questions_beside(inside, dev, 0, taught, may_join=new)
    assert len(asked) == round(0.5 * 15)
    assert not (asked % 2).any()
    assert not chosen[1::2].any()
    assert cross_validated(inside, dev, (4,), 0, taught, may_join=~taught.numpy()) == []
    assert questions_beside(inside, dev, 0, taught, may_join=~taught.numpy()) is None


def test_cross_validated_questions_of_another_kind_are_left_out(monkeypatch):
    """Dev questions that the dual-encoder ranks perfectly, beside training questions that it cannot rank."""
    graph = rotated_graph()
    hidden = torch.arange(40) < 10
    perfect = Judged.of(graph.without(hidden), {}, graph.passages[:10].numpy(), [[row] for row in range(10)])
    assert cross_validated(graph.without(hidden), perfect, (4,), 0, torch.ones(40, dtype=torch.bool)) == []


@pytest.mark.parametrize(("share", "kept"), [(0.5, (20, 20)), (1.0, (80, 0)), (0.0, (0, 20)), (0.9, (80, 9))])
def test_drawn_questions_have_devs_share_of_passages_with_questions(share, kept):
    warm = np.arange(100) < 80
    drawn = judged._matched(warm, share, np.random.default_rng(0))
    assert (drawn[:80].sum(), drawn[80:].sum()) == kept


def test_questions_beside_few_dev_questions_are_a_tenth_and_not_in_their_graph():
    """They are drawn from what may be taught; a dual-encoder that ranks them unlike dev's leaves none."""
    graph = rotated_graph(count=80)
    hidden = torch.arange(80) < 10
    inside, taught = graph.without(hidden), torch.arange(80) % 2 == 0
    chosen, _, its = questions_beside(inside, of_dev(inside, list(range(10))), 0, taught)
    rows = np.flatnonzero(chosen)
    assert len(rows) == round(35 / 10)
    assert (rows >= 10).all()
    assert not (rows % 2).any()
    assert its.relevant == [[row] for row in rows]
    torch.testing.assert_close(its.queries, graph.queries[rows])
    assert not its.graph.visible[rows].any()
    assert int(its.graph.visible.sum()) == 70 - len(rows)

    perfect = Judged.of(inside, {}, graph.passages[:10].numpy(), [[row] for row in range(10)])
    assert questions_beside(inside, perfect, 0, torch.ones(80, dtype=torch.bool)) is None


def test_questions_beside_are_about_passages_with_questions_as_often_as_devs():
    graph = rotated_graph(count=80)
    rows = torch.arange(80)
    graph = graph._replace(labels=torch.stack([rows, rows // 2 * 2], dim=1))  # two questions each
    dev = Judged.of(graph, {}, graph.queries[:20].numpy(), [[row // 2 * 2] for row in range(20)])
    assert dev.warm.all()
    chosen, _, judged = questions_beside(graph, dev, 0, torch.ones(80, dtype=torch.bool))
    assert judged.warm.all()
    assert 0 < chosen.sum() <= 8


def clicked(count: int, shown: list[int] | None = None, weights: tuple[float, ...] = (1.0,)) -> ClickedQuestions:
    """Each of ``count`` questions wants the passage of its row; weights repeat."""
    its = [None if shown is None else [row, *(one for one in shown if one != row)] for row in range(count)]
    return ClickedQuestions([[row] for row in range(count)], its, np.resize(np.array(weights), count))


def test_by_clicks_a_question_ranks_what_it_was_shown_and_counts_by_its_weight():
    graph = rotated_graph()
    wanted = [[row] for row in range(40)]
    plain = Judged.of(graph, {}, graph.queries.numpy(), wanted).measure(Messages())
    among = Judged.of(graph, {}, graph.queries.numpy(), wanted, clicked(40, [0, 1, 2])).measure(Messages())
    assert np.array_equal(among, reciprocal_ranks(graph.passages, graph.queries, wanted, clicked(40, [0, 1, 2]).shown))
    assert (among >= plain).all()  # fewer passages are before it
    assert among.mean() > plain.mean()
    weighted = Judged.of(graph, {}, graph.queries.numpy(), wanted, clicked(40, weights=(1.0, 9.0)))
    assert weighted.measure(Messages()).mean() == pytest.approx(np.average(plain, weights=np.resize([1.0, 9.0], 40)))
    assert weighted.only([1, 3]).measure(Messages()).tolist() == plain[[1, 3]].tolist()  # their weights are equal


def test_cross_validated_questions_count_by_their_clicks():
    graph, taught = rotated_graph(), torch.ones(40, dtype=torch.bool)
    its = clicked(40, [0, 1, 2], (1.0, 9.0))
    inside = graph.without(torch.arange(40) < 10)
    dev = Judged.of(inside, {}, graph.queries[:10].numpy(), its.relevant[:10], its.only(range(10)))
    folds = cross_validated(inside, dev, (4,), 0, taught, clicked=its)
    assert folds
    for fold in folds:
        rows = [relevant[0] for relevant in fold.relevant]
        assert fold.clicked is not None
        assert fold.clicked.relevant == fold.relevant
        assert fold.clicked.weights.tolist() == its.weights[rows].tolist()
        assert fold.clicked.shown == [its.shown[row] for row in rows]
