import numpy as np
import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import ClickedDev, choose_fusion
from gnnretrieval.evaluation.fusion_choice import METHOD, WEIGHTS, mean_best_weight
from gnnretrieval.index.fuse import fuse

QUERIES = [f"q{number}" for number in range(40)]
QRELS = {query: {"right": 1} for query in QUERIES}


def run_of(scores_of):
    """A run with ``scores_of(number)`` for each query."""
    return {
        query: rank([ScoredPassage(*pair) for pair in scores_of(number).items()])
        for number, query in enumerate(QUERIES)
    }


def test_two_runs_that_each_lift_the_right_passage_over_other_wrong_ones_are_fused():
    one = run_of(lambda number: {"wrong": 1.0 - number % 2, "right": 0.6, "x": 0.5 + 0.5 * (number % 2), "y": 0.0})
    two = run_of(lambda number: {"other": 1.0, "right": 0.9, "z": 0.0})
    choice = choose_fusion([one, two], QRELS)
    assert choice.is_fusion
    assert sum(choice.weights) == pytest.approx(1)
    assert (choice.half, choice.value, choice.queries, choice.measure) == (0.5, 1.0, 40, "RR@10")
    first, second = choice.weights
    assert choice.line(["bm25", "gnn"]) == (
        f"weighted with weights bm25 {first:g}, gnn {second:g}: 100.0 on 40 dev questions, RR@10 × 100; 50.0 by the"
        " better run alone"
    )
    fused = fuse([one, two], METHOD, weights=choice.weights)
    assert [fused[query][0].passage_id for query in QUERIES] == ["right"] * 40


def test_the_better_run_is_kept_alone_where_the_other_only_harms():
    good = run_of(lambda number: {"right": 1.0, "wrong": 0.8, "x": 0.0})
    bad = run_of(lambda number: {"wrong": 1.0, "right": 0.1, "x": 0.0})
    choice = choose_fusion([bad, good], QRELS)
    assert (choice.weights, choice.value, choice.half) == ((0.0, 1.0), 1.0, 1.0)
    assert choice.line(["bm25", "gnn"]).startswith(
        "gnn alone, 100.0 on 40 dev questions, RR@10 × 100: the fusion changes"
    )
    fused = fuse([bad, good], METHOD, weights=choice.weights)
    assert [[one.passage_id for one in fused[query]] for query in QUERIES] == [["right", "wrong", "x"]] * 40


@pytest.mark.parametrize("place", [0, 1])
def test_a_run_of_another_split_is_refused(place):
    runs = [run_of(lambda number: {"right": 1.0, "wrong": 0.8}) for _ in range(2)]
    runs[place] = {f"test-{query}": ranking for query, ranking in runs[place].items()}
    with pytest.raises(InputError, match="no query in common with the qrels"):
        choose_fusion(runs, QRELS)


def test_the_weight_is_the_mean_of_the_best_weights_of_resamples():
    values = np.zeros((11, 1000))
    values[3] = 1.0  # best on every resample
    assert mean_best_weight(values) == pytest.approx(0.3)
    values[7] = 1.0  # as good: their mean
    assert mean_best_weight(values) == pytest.approx(0.5)
    values[7, :500], values[7, 500:] = 0.0, 2.0  # best on about half of the resamples
    assert 0.4 < mean_best_weight(values) < 0.6
    assert mean_best_weight(values) != pytest.approx(0.5)


def test_a_weight_by_few_questions_is_nearer_to_the_truth_than_the_best_on_them():
    """Of 30 noisy questions, by a value that is highest at weight 0.3."""
    rng = np.random.default_rng(0)
    truth = -((WEIGHTS - 0.3) ** 2)
    error_of_mean, error_of_best = [], []
    for _ in range(100):
        values = truth[:, None] + rng.normal(0, 0.5, (11, 30))
        error_of_mean.append(abs(mean_best_weight(values) - 0.3))
        error_of_best.append(abs(WEIGHTS[values.mean(1).argmax()] - 0.3))
    assert np.mean(error_of_mean) < 0.8 * np.mean(error_of_best)


def test_by_clicks_only_what_was_shown_is_ranked_and_questions_count_by_their_weights():
    one = run_of(lambda number: {"not shown": 1.0, "right": 0.9, "wrong": 0.0} if number < 10 else {"right": 1.0})
    two = run_of(lambda number: {"right": 1.0} if number < 10 else {"wrong": 1.0, "right": 0.5, "x": 0.0})
    shown = dict.fromkeys(QUERIES, ("right", "wrong"))
    alike = ClickedDev(shown, dict.fromkeys(QUERIES, 2.0))
    assert choose_fusion([one, two], QRELS).half == pytest.approx((10 * 0.5 + 30) / 40)
    assert choose_fusion([one, two], QRELS, clicked=alike).half == 1.0  # the first, whose best passage was not shown
    unknown = alike._replace(shown={**shown, "q0": None})  # all passages are ranked for it
    assert choose_fusion([one, two], QRELS, clicked=unknown).half == pytest.approx((0.5 + 39) / 40)
    heavy = unknown._replace(weights={**alike.weights, "q0": 18.0})
    assert choose_fusion([one, two], QRELS, clicked=heavy).half == pytest.approx((18 * 0.5 + 39 * 2) / (18 + 39 * 2))


def test_equal_runs_are_not_fused():
    run = run_of(lambda number: {"right": 1.0, "wrong": 0.8})
    assert choose_fusion([run, run], QRELS).weights == (1.0, 0.0)


@pytest.mark.parametrize(("lost", "gained", "fused"), [(20, 0, False), (2, 1, True), (4, 2, True), (9, 2, False)])
def test_a_fusion_that_loses_more_than_a_standard_error_on_dev_is_not_chosen(monkeypatch, lost, gained, fused):
    """The other run hides some of what the better one finds, and finds some of the rest. The weight is forced."""

    def other(number):
        return {"wrong": 1.0, "right": 0.0, "x": 0.2} if number < lost else {"right": 1.0, "wrong": 0.0}

    better = run_of(lambda number: {"right": 1.0, "wrong": 0.8, "x": 0.0} if number < 40 - gained else {"wrong": 1.0})
    monkeypatch.setattr("gnnretrieval.evaluation.fusion_choice.mean_best_weight", lambda values: 0.7)
    choice = choose_fusion([run_of(other), better], QRELS)
    assert choice.half == 1 - gained / 40
    assert choice.is_fusion == fused
    assert choice.value == pytest.approx(choice.half - (lost - gained) / 80 if fused else choice.half)


def test_two_runs_are_wanted():
    with pytest.raises(InputError, match="two runs, and there are 3"):
        choose_fusion([{}, {}, {}], QRELS)
