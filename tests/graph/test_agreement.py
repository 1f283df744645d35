import numpy as np
import pytest

from gnnretrieval.graph.inspection import agreement as module
from gnnretrieval.graph.inspection.agreement import agreement_figures


def unit(degrees: float) -> list[float]:
    return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]


def test_agreement_is_the_mean_pairwise_cosine_of_a_passage_s_questions(hand_made):
    questions = [unit(0), unit(60), unit(60), [0, 2], [3, 0], unit(20)]  # lengths play no part
    labels = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]
    store = hand_made([[0, 1]] * 6, passages=np.eye(4, 2), queries=questions, labels=labels)
    figures = agreement_figures(store, most=5, seed=0)
    first, second = (0.5 + 0.5 + 1) / 3, 0.0
    assert (figures.passages, figures.questions, figures.passages_in_all) == (2, 5, 2)
    assert figures.share_of_queries == pytest.approx(5 / 6)
    assert figures.mean == pytest.approx((first + second) / 2, abs=2e-3)
    assert [(row.id, row.questions) for row in figures.disagreeing] == [("p1", 2), ("p0", 3)]
    assert figures.disagreeing[0].agreement == pytest.approx(second, abs=2e-3)
    apart = figures.disagreeing[1]
    assert apart.cosine == pytest.approx(0.5, abs=2e-3)
    assert [query.id for query in apart.apart] == ["q0", "q1"]
    assert sum(figures.histogram.counts) == 2


def test_it_equals_brute_force_on_a_built_graph(tiny_graph):
    figures = agreement_figures(tiny_graph, most=100, seed=0)
    vectors = np.asarray(tiny_graph.query_features, dtype=np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = {}
    for passage in np.unique(tiny_graph.labels[:, 1]):
        asked = vectors[tiny_graph.labels[tiny_graph.labels[:, 1] == passage, 0]]
        if len(asked) > 1:
            expected[f"p{passage:02d}"] = (asked @ asked.T)[np.triu_indices(len(asked), 1)].mean()
    assert {row.id: row.agreement for row in figures.disagreeing} == pytest.approx(expected, abs=1e-5)
    assert figures.mean == pytest.approx(np.mean(list(expected.values())), abs=1e-5)
    values = [row.agreement for row in figures.disagreeing]
    assert values == sorted(values)


def test_paraphrase_is_one_for_equal_questions_and_zero_where_they_are_like_any_two(hand_made):
    rng = np.random.default_rng(0)
    labels = [(query, query // 3) for query in range(300)]
    subjects = np.repeat(rng.standard_normal((100, 64)), 3, axis=0)
    same = hand_made([[0, 1]] * 300, passages=np.eye(100, 64), queries=subjects, labels=labels)
    assert agreement_figures(same, most=0, seed=0).paraphrase == pytest.approx(1, abs=1e-3)
    alike = rng.standard_normal((300, 64)) + 2 * rng.standard_normal(64)  # a common direction is no agreement
    any_two = agreement_figures(
        hand_made([[0, 1]] * 300, passages=np.eye(100, 64), queries=alike, labels=labels), most=0, seed=0
    )
    assert any_two.mean > 0.5
    assert any_two.paraphrase == pytest.approx(0, abs=0.05)
    assert any_two.random.mean == pytest.approx(any_two.mean, abs=0.02)


def test_without_two_questions_of_one_passage_it_is_not_known(hand_made):
    assert agreement_figures(hand_made([[0, 1]] * 3, labels=[(0, 0), (1, 1)]), most=5, seed=0) is None


def test_a_large_graph_is_sampled_by_whole_passages_and_says_so(hand_made, monkeypatch):
    labels = [(query, query // 2) for query in range(80)]
    store = hand_made([[0, 1]] * 80, passages=40, labels=labels)
    whole = agreement_figures(store, most=0, seed=0)
    monkeypatch.setattr(module, "_BLOCK", 5)
    assert agreement_figures(store, most=0, seed=0).mean == pytest.approx(whole.mean)
    monkeypatch.setattr(module, "QUESTIONS", 20)
    sampled = agreement_figures(store, most=0, seed=0)
    assert (sampled.passages, sampled.questions, sampled.passages_in_all) == (10, 20, 40)
    assert sampled == agreement_figures(store, most=0, seed=0)
