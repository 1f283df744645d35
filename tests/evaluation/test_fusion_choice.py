import numpy as np
import pytest

from gnnretrieval import resampling
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import choose_fusion
from gnnretrieval.evaluation.fusion_choice import FUSIONS, HALVES, Fusion, chosen
from gnnretrieval.index.fuse import fuse

QUERIES = [f"q{number}" for number in range(40)]
QRELS = {query: {"right": 1} for query in QUERIES}


def run_of(scores_of):
    """A run with ``scores_of(number)`` for each query."""
    return {
        query: rank([ScoredPassage(*pair) for pair in scores_of(number).items()])
        for number, query in enumerate(QUERIES)
    }


def test_what_is_tried():
    assert HALVES == (("rrf", (1, 0)), ("rrf", (0, 1)))
    assert FUSIONS[0] == ("rrf", (1, 1))
    assert [fusion.weights for fusion in FUSIONS[1:]] == [
        (0.9, 0.1), (0.8, 0.2), (0.7, 0.3), (0.6, 0.4), (0.5, 0.5), (0.4, 0.6), (0.3, 0.7), (0.2, 0.8), (0.1, 0.9)
    ]  # fmt: skip
    assert {fusion.method for fusion in FUSIONS[1:]} == {"weighted"}


def test_two_runs_that_each_lift_the_right_passage_over_other_wrong_ones_are_fused():
    one = run_of(lambda number: {"wrong": 1.0 - number % 2, "right": 0.6, "x": 0.5 + 0.5 * (number % 2), "y": 0.0})
    two = run_of(lambda number: {"other": 1.0, "right": 0.9, "z": 0.0})
    choice = choose_fusion([one, two], QRELS)
    assert choice.is_fusion
    assert (choice.method, choice.weights) == ("rrf", (1.0, 1.0))
    assert (choice.half, choice.value, choice.queries, choice.measure) == (0.5, 1.0, 40, "RR@10")
    assert choice.p == pytest.approx(1 / 10_001)
    assert choice.line(["bm25", "gnn"]) == (
        "rrf with weights bm25 1, gnn 1: 100.0 on 40 dev questions, RR@10 × 100; 50.0 by the better run alone"
        " (p = 0.0001)"
    )


def test_the_better_run_is_kept_alone_where_the_other_only_harms():
    good = run_of(lambda number: {"right": 1.0, "wrong": 0.8, "x": 0.0})
    bad = run_of(lambda number: {"wrong": 1.0, "right": 0.1, "x": 0.0})
    choice = choose_fusion([bad, good], QRELS)
    assert (choice.weights, choice.value, choice.half) == ((0.0, 1.0), 1.0, 1.0)
    assert choice.line(["bm25", "gnn"]).startswith("gnn alone, 100.0 on 40 dev questions, RR@10 × 100: no fusion")
    fused = fuse([bad, good], choice.method, weights=choice.weights)
    assert [[one.passage_id for one in fused[query]] for query in QUERIES] == [["right", "wrong", "x"]] * 40


def test_of_fusions_about_as_good_the_nearest_to_equal_weights_is_taken():
    """All gain; weight 0.9 gains most, 0.6 within a standard error of it, and equal weights do not."""
    base, gain = np.zeros(200), np.random.default_rng(0).random(200)
    values = dict.fromkeys(HALVES, base) | dict.fromkeys(FUSIONS, base + 0.5 * gain)
    noise = np.where(np.arange(200) % 2, 0.2, -0.2)  # of mean 0: its standard error is 0.014
    values[Fusion("weighted", (0.1, 0.9))] = base + gain
    values[Fusion("weighted", (0.4, 0.6))] = base + gain + noise - 0.01
    assert chosen(values, "RR@10").weights == (0.4, 0.6)
    values[Fusion("weighted", (0.4, 0.6))] = base + gain + noise - 0.02
    assert chosen(values, "RR@10").weights == (0.1, 0.9)


@pytest.mark.parametrize("related", [True, False], ids=["nested", "unrelated"])
def test_where_no_fusion_is_better_in_truth_the_better_half_is_mostly_kept(related, monkeypatch):
    """Fusions change some questions, by signs drawn at random: more of them the more weight the second run has."""
    monkeypatch.setattr(resampling, "RESAMPLES", 1000)
    rng = np.random.default_rng(0)
    kept = 0
    for _ in range(200):
        changes, thresholds = rng.choice([1, 0.5, 0.33, 0.17], 200), 1.5 * rng.random(200)
        signs = rng.choice([-1, 1], (len(FUSIONS), 200))
        values = {HALVES[0]: np.full(200, 0.5), HALVES[1]: np.full(200, 0.3)}
        for fusion, its_signs in zip(FUSIONS, signs, strict=True):
            changed = fusion.weights[1] / sum(fusion.weights) > thresholds
            values[fusion] = 0.5 + changed * changes * (signs[0] if related else its_signs)
        choice = chosen(values, "RR@10")
        kept += not choice.is_fusion
        assert choice.is_fusion or choice.weights == (1, 0)
    assert kept >= 126  # 70 %, less two standard deviations


def test_two_runs_are_wanted():
    with pytest.raises(InputError, match="two runs, and there are 3"):
        choose_fusion([{}, {}, {}], QRELS)
