"""Updates of passage vectors: a step by hand, and what a mean of the questions cannot do."""

import math

import pytest
import torch
from torch.nn import functional as F

from gnnretrieval.nn import label_messages, passage_updates
from gnnretrieval.nn.label_messages import (
    Computed,
    Heads,
    MessageGraph,
    Messages,
    message_vectors,
    moved_vectors,
    moves,
)
from gnnretrieval.nn.passage_updates import _shuffled, pull_of_another, updated


def graph_of(passages, queries, labels, *, normalize=False, scale=2.0):
    """A graph without retrieved edges that matter."""
    queries = torch.tensor(queries)
    return MessageGraph(
        torch.tensor(passages),
        queries,
        torch.zeros(len(queries), 1, dtype=torch.int64),
        torch.tensor(labels, dtype=torch.int64).reshape(-1, 2),
        torch.ones(len(queries), dtype=torch.bool),
        normalize,
        scale,
    )


def test_a_query_pulls_its_passage_and_pushes_the_other_candidate_by_the_softmax():
    graph = graph_of([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], [[0.6, 0.8], [0.0, 0.0]], [[0, 0], [1, 1]])
    after = updated(graph, graph.passages, graph.queries, [1], 0.5)[1]
    wanted, other = (math.exp(2.0 * score) for score in (0.6, 0.8))
    pull = 0.5 * other / (wanted + other)
    torch.testing.assert_close(after.passages[0], torch.tensor([1.0 + 0.6 * pull, 0.8 * pull]))
    torch.testing.assert_close(after.passages[1], torch.tensor([-0.6 * pull, 1.0 - 0.8 * pull]))
    assert after.passages[2].tolist() == [5.0, 5.0]  # no label: no candidate, though it scores highest
    torch.testing.assert_close(after.pulls, torch.tensor([pull, 0.25]))


def test_a_passage_that_is_relevant_too_is_not_pushed():
    graph = graph_of([[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]], [[0, 0], [0, 1]])
    after = updated(graph, graph.passages, graph.queries, [3], 0.5)[3]
    assert after.passages.equal(graph.passages)
    assert after.pulls.tolist() == [0.0, 0.0]


def test_without_labels_or_passes_nothing_moves():
    graph = graph_of([[1.0, 0.0]], [[0.6, 0.8]], [])
    assert updated(graph, graph.passages, graph.queries, [0, 2], 0.5)[2].passages.equal(graph.passages)
    labelled = graph_of([[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]], [[0, 1]])
    assert updated(labelled, labelled.passages, labelled.queries, [0], 0.5)[0].passages.equal(labelled.passages)


def many(seed=0):
    """Twenty passages with six unlike questions each, of which the next passage's are distractors."""
    generator = torch.Generator().manual_seed(seed)
    queries = F.normalize(torch.randn(120, 24, generator=generator), dim=1)
    passages = F.normalize(torch.randn(20, 24, generator=generator), dim=1)
    labels = [[row, row // 6] for row in range(120)]
    return graph_of(passages.tolist(), queries.tolist(), labels, normalize=True, scale=20.0)


def first(graph, vectors):
    """Share of the questions whose passage ranks first."""
    best = (graph.queries @ vectors.T).argmax(1)
    return float((best[graph.labels[:, 0]] == graph.labels[:, 1]).float().mean())


def test_updates_answer_questions_that_a_mean_of_them_does_not():
    graph = many()
    mean = message_vectors(graph, None, Messages(mean=1.0))
    moved = message_vectors(graph, None, Messages(mean=1.0, passes=20, update_size=0.2))
    assert first(graph, mean) < 0.7
    assert first(graph, moved) > 0.9
    torch.testing.assert_close(moved.norm(dim=1), torch.ones(20))


@pytest.mark.parametrize("kept", [label_messages.KEPT, 0])
def test_passes_that_were_computed_together_are_those_of_each_alone(monkeypatch, kept):
    monkeypatch.setattr(label_messages, "KEPT", kept)
    graph, computed = many(), Computed(passes=(2, 5))
    turned = Heads.shared(torch.eye(24) + 0.1)
    for heads, messages in (
        (None, Messages(passes=2, update_size=0.1)),
        (None, Messages(passes=5, update_size=0.1, prior=0.1)),
        (None, Messages(passes=5, update_size=0.3)),
        (None, Messages(mean=0.2, passes=3, update_size=0.3)),
        (None, Messages(mean=0.2, rounds=1, step_size=0.1)),
        (None, Messages(mean=0.2, rounds=1, step_size=0.1, passes=3, update_size=0.3, questions=0.2)),
        (None, Messages(mean=0.2, rounds=2, step_size=0.1, prior=0.1)),
        (turned, Messages(steps=1, mean=0.2, passes=2, update_size=0.3)),
    ):
        assert message_vectors(graph, heads, messages, computed).equal(message_vectors(graph, heads, messages))
    assert len(computed.updates) == (2 if kept else 0)


def test_passes_that_others_want_are_computed_once(monkeypatch):
    graph, computed = many(), Computed(passes=(2, 5))
    message_vectors(graph, None, Messages(passes=2, update_size=0.1), computed)
    monkeypatch.setattr(label_messages, "updated", None)
    message_vectors(graph, None, Messages(passes=5, update_size=0.1, scaling=0.2), computed)
    with pytest.raises(TypeError):
        message_vectors(graph, None, Messages(passes=5, update_size=0.2), computed)


def test_rejection_is_computed_once_for_what_follows_it(monkeypatch):
    graph, computed, rejection = many(), Computed(passes=(2, 5)), Messages(rounds=1, step_size=0.1)
    alone = message_vectors(graph, None, rejection, computed)
    monkeypatch.setattr(label_messages, "rejected", None)
    moved = message_vectors(graph, None, rejection._replace(passes=2, update_size=0.1), computed)
    assert not torch.allclose(alone, moved)
    for later in (rejection, rejection._replace(prior=0.1), rejection._replace(scaling=0.1)):
        message_vectors(graph, None, later, computed)
    with pytest.raises(TypeError):
        message_vectors(graph, None, rejection._replace(mean=0.1), computed)


def test_pulls_are_of_the_labels_in_their_order():
    graph, messages = many(), Messages(passes=3, update_size=0.1)
    weights = moves(graph, None, messages).pulls
    torch.testing.assert_close(weights, updated(graph, graph.passages, graph.queries, [3], 0.1)[3].pulls)
    assert (weights >= 0).all()
    assert weights.max() <= 0.3 + 1e-6


def test_random_candidates_do_not_change_a_small_graph(monkeypatch):
    graph = many()
    monkeypatch.setattr(passage_updates, "BATCH", 120)
    before = updated(graph, graph.passages, graph.queries, [1], 0.1)[1].passages
    monkeypatch.setattr(passage_updates, "OTHERS", 2048)  # all passages are candidates either way
    torch.testing.assert_close(updated(graph, graph.passages, graph.queries, [1], 0.1)[1].passages, before)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_passage_moved_by_what_the_updates_moved_it_has_their_vector(normalize):
    graph, messages = many()._replace(normalize=normalize), Messages(mean=0.2, passes=4, update_size=0.3, prior=0.1)
    by = moves(graph, None, messages).by
    torch.testing.assert_close(moved_vectors(graph, None, messages, by), message_vectors(graph, None, messages))
    torch.testing.assert_close(moved_vectors(graph, None, messages, by[:3]), message_vectors(graph, None, messages)[:3])
    assert by.norm(dim=1).min() > 0.1


def test_another_query_pulls_by_what_the_softmax_lacks():
    graph = graph_of([[1.0, 0.0], [0.0, 1.0], [1.5, 0.0]], [[0.6, 0.8], [0.0, 0.0]], [[0, 0], [1, 1]])
    query = torch.tensor([1.0, 0.0])
    assert pull_of_another(graph._replace(labels=graph.labels[:0]), graph.passages, 0, query, 3, 0.1) == 0
    share = math.exp(2.0) / (math.exp(2.0) + 1.0)  # of passages 0 and 1: passage 2 has no label
    assert pull_of_another(graph, graph.passages, 0, query, 3, 0.1) == pytest.approx(0.3 * (1 - share))
    share = math.exp(3.0) / (math.exp(3.0) + math.exp(2.0) + 1.0)
    assert pull_of_another(graph, graph.passages, 2, query, 1, 0.1) == pytest.approx(0.1 * (1 - share))


def test_a_label_that_is_left_out_leaves_the_others_in_their_order():
    keys = torch.arange(3000) * 7
    left = torch.arange(3000) % 10 > 0
    for turn in (1, 2):
        order = keys[_shuffled(keys, turn)]
        assert order[torch.isin(order, keys[left])].equal(keys[left][_shuffled(keys[left], turn)])
        assert abs(float(torch.corrcoef(torch.stack([order, keys]).double())[0, 1])) < 0.1
    assert not _shuffled(keys, 1).equal(_shuffled(keys, 2))
    evens = (keys[_shuffled(keys, 1)] // 7 % 2 == 0).double()  # consecutive rows do not stay together
    assert abs(float((evens[:-1] * evens[1:]).mean()) - 0.25) < 0.03


def test_a_label_that_is_left_out_moves_other_passages_little(monkeypatch):
    monkeypatch.setattr(passage_updates, "BATCH", 8)
    monkeypatch.setattr(passage_updates, "OTHERS", 4)
    graph, messages = many(), Messages(passes=8, update_size=0.2)
    before = message_vectors(graph, None, messages)
    after = message_vectors(graph.without(torch.arange(120) == 7), None, messages)
    cosines = torch.cosine_similarity(before, after)
    assert cosines[1] < cosines.median() > 0.99
