import numpy as np
import pytest

from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.inspection import connectivity
from gnnretrieval.graph.inspection.connectivity import (
    degree_figures,
    histogram,
    most_found,
    recall_by_rank,
    sample_queries,
    score_figures,
)


def test_degrees_are_counted_in_doubling_bins_that_hold_every_passage():
    figures = degree_figures(np.array([0, 0, 1, 2, 3, 4, 5, 9]))
    assert [(bin_.first, bin_.last, bin_.passages) for bin_ in figures.histogram] == [
        (0, 0, 2),
        (1, 1, 1),
        (2, 2, 1),
        (3, 4, 2),
        (5, 8, 1),
        (9, 16, 1),
    ]
    assert (figures.mean, figures.max, figures.share_never_found) == (3.0, 9, 0.25)


def test_hubs_hold_their_share_of_the_edges():
    degrees = np.ones(200, dtype=np.int64)
    assert degree_figures(degrees).edges_of_top_percent == pytest.approx(0.01)
    degrees[:2] = 199  # 2 of 200 are 1 %
    assert degree_figures(degrees).edges_of_top_percent == pytest.approx(398 / 596)


def test_the_most_found_passages_are_named_most_first_and_by_row_where_equal(hand_made):
    store = hand_made([[3, 1], [3, 2], [3, 1], [5, 2]])
    named = most_found(store, store.degrees(), 3)
    assert [(passage.id, passage.queries) for passage in named] == [("p3", 3), ("p1", 2), ("p2", 2)]
    assert most_found(store, store.degrees(), 0) == []
    assert [passage.id for passage in most_found(store, store.degrees(), 50)] == ["p3", "p1", "p2", "p5"]


def test_scores_that_are_not_finite_are_damage(hand_made):
    store = hand_made([[0, 1], [1, 2]])
    store.scores[1, 0] = np.nan
    with pytest.raises(ArtifactError, match="not finite"):
        score_figures(store, seed=0)


def test_recall_counts_labelled_queries_alone(hand_made):
    store = hand_made([[0, 1, 2], [3, 4, 5], [6, 7, 0], [1, 2, 3]], labels=[(0, 1), (1, 3), (1, 5), (2, 4)])
    assert recall_by_rank(store) == (3, [pytest.approx(1 / 3), pytest.approx(2 / 3), pytest.approx(2 / 3)])
    assert recall_by_rank(hand_made([[0, 1]])) == (0, [])


def test_recall_does_not_depend_on_the_block(hand_made, monkeypatch):
    rng = np.random.default_rng(1)
    store = hand_made(rng.integers(0, 8, (30, 3)), labels=[(q, int(rng.integers(8))) for q in range(0, 30, 2)])
    whole = recall_by_rank(store)
    monkeypatch.setattr(connectivity, "_BLOCK", 7)
    assert recall_by_rank(store) == whole


def test_scores_are_counted_by_rank_over_the_same_bins(hand_made):
    store = hand_made([[0, 1], [2, 3]], scores=[[1.0, 0.5], [0.8, 0.0]])
    figures = score_figures(store, seed=0)
    assert figures.p50 == pytest.approx(0.65)
    edges, ranks = figures.by_rank.edges, figures.by_rank.ranks
    assert (edges[0], edges[-1], list(ranks)) == (0.0, 1.0, ["1", "2"])
    assert [edges[place] for place, count in enumerate(ranks["2"]) if count] == [0.0, pytest.approx(0.5)]
    assert sum(ranks["1"]) == 2


def test_a_sample_is_seeded_sorted_and_of_a_view_s_own_queries(hand_made):
    store = hand_made([[0, 1]] * 50)
    rows = sample_queries(store, 10, seed=3)
    assert rows.tolist() == sample_queries(store, 10, seed=3).tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 10
    view = store.view(queries=np.arange(20, 40))
    assert set(sample_queries(view, 10, seed=3).tolist()) <= set(range(20, 40))
    assert sample_queries(view, 100, seed=3).tolist() == list(range(20, 40))


def test_a_histogram_of_nearly_equal_values_has_its_bins():
    values = np.full(5, 1.0, dtype=np.float32)
    made = histogram(values, float(np.nextafter(np.float32(1), np.float32(0))), 1.0)
    assert sum(made.counts) == 5
