"""Messages along label and hard-negative edges, by hand-worked examples."""

import math

import pytest
import torch
from torch.nn import functional as F

from gnnretrieval.nn import label_messages
from gnnretrieval.nn.label_messages import (
    Computed,
    Heads,
    Mapped,
    MessageGraph,
    Messages,
    local_scale,
    mean_nearness,
    message_vectors,
    mixed,
    nearness,
)
from gnnretrieval.nn.rejection import rejected


def graph_of(*, normalize: bool = True, hidden: tuple[int, ...] = ()) -> MessageGraph:
    """Three passages and two queries in the plane; query 0 wants passage 0, query 1 wants passage 1."""
    passages = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    queries = torch.tensor([[0.8, 0.6], [0.0, 1.0]])
    visible = torch.tensor([row not in hidden for row in range(2)])
    labels = torch.tensor([[0, 0], [1, 1]])
    return MessageGraph(
        passages, queries, torch.tensor([[0, 2], [1, 2]]), labels[visible[labels[:, 0]]], visible, normalize, 2.0
    )


def test_no_messages_are_the_dual_encoder():
    graph = graph_of()
    assert message_vectors(graph, None, Messages()).equal(graph.passages)


def test_label_mean_mixes_a_passage_with_its_labelled_queries_alone():
    passages, queries = mixed(Mapped(graph_of()._replace(normalize=False), None), 0.5)
    torch.testing.assert_close(passages, torch.tensor([[0.9, 0.3], [0.0, 1.0], [0.6, 0.8]]))
    assert queries.equal(graph_of().queries)


def test_a_passage_moves_away_from_what_found_it_and_wanted_another():
    graph = graph_of(hidden=(1,))
    scores = 2.0 * torch.tensor([0.8, 0.96])  # of query 0 with passages 0 (its own) and 2
    attention = math.exp(scores[1]) / (math.exp(scores[0]) + math.exp(scores[1]))
    pushed = F.normalize(graph.passages[2] - 0.5 * attention * graph.queries[0], dim=0)
    after, _ = rejected(graph, graph.passages, graph.queries, 1, 0.5)
    torch.testing.assert_close(after, torch.stack([graph.passages[0], graph.passages[1], pushed]))


def test_a_relevant_passage_that_was_not_retrieved_competes_for_attention():
    graph = graph_of(hidden=(1,))._replace(neighbors=torch.tensor([[1, 2], [1, 2]]))
    attention = torch.softmax(2.0 * torch.tensor([0.8, 0.6, 0.96]), 0)  # of passages 0, 1 and 2
    pushes = torch.stack([torch.zeros(2), *(-attention[row] * graph.queries[0] for row in (1, 2))])
    after, _ = rejected(graph, graph.passages, graph.queries, 1, 0.1)
    torch.testing.assert_close(after, F.normalize(graph.passages + 0.1 * pushes, dim=1))


def test_rounds_compute_attention_again():
    graph = graph_of()
    once, _ = rejected(graph, graph.passages, graph.queries, 1, 0.5)
    twice, _ = rejected(graph, graph.passages, graph.queries, 2, 0.5)
    assert not torch.allclose(once, twice)


def test_the_heads_are_folded_into_the_passages():
    """Passages are mapped by their head, and their questions by the queries' head, before they are mixed."""
    graph, asked = graph_of(), torch.tensor([0.3, 0.7])
    heads = Heads(torch.tensor([[1.0, 0.5], [-0.2, 0.9]]), torch.tensor([[0.8, -0.1], [0.4, 1.1]]))
    folded = message_vectors(graph, heads, Messages(steps=1, mean=0.3, sides="apart"))
    mapped = graph._replace(passages=graph.passages @ heads.passages.T, queries=graph.queries @ heads.queries.T)
    projected = message_vectors(mapped, None, Messages(mean=0.3))
    torch.testing.assert_close(folded @ asked, projected @ (heads.queries @ asked))


@pytest.mark.parametrize("prior", [-0.3, 0.03])
def test_the_prior_changes_the_length_of_passages_with_labelled_queries_alone(prior: float):
    lengths = message_vectors(graph_of(), None, Messages(prior=prior)).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1 + prior, 1 + prior, 1.0]))


def test_nearness_is_the_mean_similarity_to_the_nearest_visible_queries(monkeypatch):
    graph, hidden = graph_of(), graph_of(hidden=(1,))
    of_both = torch.tensor([0.4, 0.8, 0.88])  # of 0.8 and 0, 0.6 and 1, 0.96 and 0.8
    torch.testing.assert_close(nearness(graph, graph.passages, graph.queries), of_both)
    torch.testing.assert_close(nearness(hidden, graph.passages, graph.queries), torch.tensor([0.8, 0.6, 0.96]))
    monkeypatch.setattr(label_messages, "NEAREST", 1)
    torch.testing.assert_close(nearness(graph, graph.passages, graph.queries), torch.tensor([0.8, 1.0, 0.96]))
    nobody = graph_of(hidden=(0, 1))
    assert nearness(nobody, graph.passages, graph.queries).tolist() == [0, 0, 0]


def test_local_scaling_shortens_the_passages_that_are_near_to_many_queries():
    lengths = message_vectors(graph_of(), None, Messages(scaling=0.5)).norm(dim=1)
    level = (0.4 + 0.8 + 0.88) / 3
    torch.testing.assert_close(lengths, (level / torch.tensor([0.4, 0.8, 0.88])).sqrt())
    assert mean_nearness(graph_of(), None, Messages()) == pytest.approx(level)


def test_a_scale_has_limits_and_needs_a_positive_level():
    near = torch.tensor([-1.0, 0.5, 1.0, 9.0])
    assert local_scale(near, 1.0, 1.0).tolist() == [2.0, 2.0, 1.0, 0.5]
    assert local_scale(near, 1.0, 2.0).tolist() == [4.0, 4.0, 1.0, 0.25]
    assert local_scale(near, -0.1, 1.0).tolist() == [1.0] * 4


def test_a_fixed_level_leaves_the_passages_that_a_new_query_is_far_from():
    more = torch.cat([torch.tensor([[0.0, -1.0]]).expand(1, 2), torch.tensor([[1.0, 0.0]]).expand(10, 2)])
    before = graph_of()._replace(queries=torch.tensor([[0.0, 1.0]]).expand(10, 2), visible=torch.ones(10).bool())
    after = before._replace(queries=torch.cat([before.queries, more]), visible=torch.ones(21).bool())
    nothing = torch.zeros(0, 2, dtype=torch.int64)
    before, after = (
        graph._replace(neighbors=torch.zeros(len(graph.queries), 1).long(), labels=nothing) for graph in (before, after)
    )
    fixed = Messages(scaling=1.0, level=0.7)
    was, now = (message_vectors(graph, None, fixed) for graph in (before, after))
    assert was[1].equal(now[1])  # the ten queries at (0, 1) stay its nearest
    assert now[0].norm() < was[0].norm()  # ten new ones at (1, 0)


def test_nearness_comes_from_a_sample_of_queries_that_more_queries_change_little(monkeypatch):
    monkeypatch.setattr(label_messages, "SAMPLE", 100)
    before, after = (label_messages.bank_rows(torch.ones(count).bool()) for count in (1000, 1100))
    assert len(before) == len(after) == 100
    assert len(set(before.tolist()) & set(after.tolist())) > 80
    assert max(torch.histc(before.float(), 5, 0, 1000)) < 40  # from everywhere
    assert label_messages.bank_rows(torch.tensor([True, False, True])).tolist() == [0, 2]


def test_nearness_that_was_computed_is_not_computed_again(monkeypatch):
    graph, computed = graph_of(), Computed()
    first = message_vectors(graph, None, Messages(prior=0.1, scaling=0.5), computed)
    monkeypatch.setattr(label_messages, "nearness", None)
    assert message_vectors(graph, None, Messages(prior=0.1, scaling=0.5), computed).equal(first)
    assert not message_vectors(graph, None, Messages(scaling=0.7), computed).equal(first)
    with pytest.raises(TypeError):
        message_vectors(graph, None, Messages(mean=0.1, scaling=0.5), computed)  # which changes the passages


@pytest.mark.parametrize("kept", [label_messages.KEPT, 0])
def test_what_was_computed_for_one_head_is_not_taken_for_another(monkeypatch, kept):
    monkeypatch.setattr(label_messages, "KEPT", kept)
    graph, computed = graph_of(), Computed()
    turned = Heads.shared(torch.tensor([[0.0, 1.0], [-1.0, 0.5]]))
    for heads, messages in (
        (None, Messages(mean=0.3)),
        (None, Messages(mean=0.6)),
        (turned, Messages(steps=1, mean=0.6)),
        (None, Messages(mean=0.3)),
    ):
        expected = message_vectors(graph, heads, messages)
        assert message_vectors(graph, heads, messages, computed).equal(expected)
    assert len(computed.mapped) == bool(kept)


def test_vectors_of_a_dot_product_encoder_keep_their_lengths():
    graph = graph_of(normalize=False)
    graph = graph._replace(passages=2 * graph.passages)
    assert message_vectors(graph, None, Messages(mean=0.5))[1].tolist() == [0.0, 1.5]


def test_a_graph_without_some_queries_sends_as_if_they_had_never_been():
    messages = Messages(mean=0.4, rounds=2, step_size=0.2, prior=0.1, scaling=0.5)
    without = graph_of().without(torch.tensor([False, True]))
    torch.testing.assert_close(
        message_vectors(without, None, messages), message_vectors(graph_of(hidden=(1,)), None, messages)
    )
    assert not torch.equal(message_vectors(without, None, messages), message_vectors(graph_of(), None, messages))
