"""The gate: chance is refused, a true gain is promoted, and no slice may lose."""

import numpy as np
import pytest
from scipy.stats import norm

from gnnretrieval.nightly.gate import RanksOfModel, feedback_slices, judge_gain, popularity_slices
from gnnretrieval.recipes.update_settings import UpdateSettings

SETTINGS = UpdateSettings(evidence=0.05)
RANKS = 1.0 / np.arange(1, 11)


def both(values):
    """A model's ranks, where all passages were shown."""
    return RanksOfModel(values, values)


def ranks(rng, count, better=0.0):
    """RR@10 of questions; a share of them is answered at rank 1."""
    return both(np.where(rng.random(count) < better, 1.0, rng.choice(RANKS, count)))


def test_equally_good_models_are_promoted_no_more_often_than_by_the_level():
    rng = np.random.default_rng(0)
    promoted = sum(judge_gain(ranks(rng, 60), ranks(rng, 60), {}, SETTINGS).promotes for _ in range(60))
    assert promoted <= 6  # 5 % expected


def test_a_true_gain_is_promoted():
    rng = np.random.default_rng(1)
    gate = judge_gain(ranks(rng, 200, better=0.4), ranks(rng, 200), {}, SETTINGS)
    assert gate.promotes
    assert 0 < gate.low < gate.gain
    assert gate.reasons == [
        f"It gains {100 * gate.gain:+.1f} RR@10 on the 200 newest questions (doubt {gate.doubt:.2g}, p = "
        f"{gate.p:.2g}), and no slice loses by more than chance."
    ]


def test_few_questions_with_a_large_gain_leave_more_doubt_than_many_with_a_small_one():
    gates = [
        judge_gain(ranks(np.random.default_rng(5), n, better), ranks(np.random.default_rng(6), n), {}, SETTINGS)
        for n, better in ((40, 0.35), (2000, 0.04))
    ]
    few, many = gates
    assert few.gain > 2 * many.gain
    assert few.p == pytest.approx(many.p, rel=0.2)
    assert few.p <= SETTINGS.evidence < few.doubt
    assert many.doubt <= SETTINGS.evidence
    assert few.reasons == [
        f"Its gain on the 40 newest questions, {100 * few.gain:+.1f} RR@10, may be chance (doubt {few.doubt:.2g}, "
        f"wanted: 0.05 or less; p = {few.p:.2g})."
    ]


def test_doubt_is_the_probability_by_the_prior_that_the_gain_is_not_above_0():
    """Against the posterior of a normal gain, integrated on a grid."""
    rng = np.random.default_rng(3)
    served, weights = rng.choice(RANKS, 300), rng.uniform(1, 10, 300)
    candidate = np.where(rng.random(300) < 0.08, 1.0, served)
    candidate[rng.random(300) < 0.05] = 0.1
    gate = judge_gain(both(candidate), both(served), {}, SETTINGS, weights)
    gains = candidate - served
    error = np.sqrt((weights**2 * (gains - gate.gain) ** 2).sum()) / weights.sum()
    measured = norm.isf(gate.p) * error  # the gain of a normal test with this p
    theta = np.linspace(-0.3, 0.3, 60001)
    posterior = np.exp(-0.5 * (theta / SETTINGS.usual_gain) ** 2 - 0.5 * ((measured - theta) / error) ** 2)
    assert gate.doubt == pytest.approx(posterior[theta <= 0].sum() / posterior.sum(), rel=0.01)
    assert gate.p < gate.doubt < 0.5


def test_a_gain_at_the_cost_of_a_slice_is_refused():
    served = np.full(200, 0.5)
    candidate = np.concatenate([np.full(150, 1.0), np.full(50, 0.2)])
    slices = {"of the head": np.arange(200) < 150, "of the tail": np.arange(200) >= 150}
    gate = judge_gain(both(candidate), both(served), slices, SETTINGS)
    assert not gate.promotes
    assert gate.reasons == ["Questions of the tail rank worse: -30.0 RR@10 over 50 (p = 0.0001)."]
    assert judge_gain(both(candidate), both(served), {"few": np.arange(200) >= 192}, SETTINGS).promotes


def test_too_few_questions_and_equal_rankings_are_refused_with_the_reason():
    few = judge_gain(both(np.ones(10)), both(np.zeros(10)), {}, SETTINGS)
    assert few.reasons == ["There are 10 held-out questions with a label, and at least 30 are needed."]
    worse = judge_gain(both(np.full(50, 0.5)), both(np.ones(50)), {}, SETTINGS)
    assert worse.reasons == ["It does not gain on the 50 newest questions: -50.0 RR@10."]
    same = judge_gain(both(np.ones(50)), both(np.ones(50)), {}, SETTINGS)
    assert same.reasons == ["The new model ranks all held-out questions as the served one does."]
    assert judge_gain(both(np.empty(0)), both(np.empty(0)), {"none": np.empty(0, dtype=bool)}, SETTINGS).p == 1.0


def test_slices_are_thirds_of_the_impressions_and_passages_with_feedback():
    slices = popularity_slices([1, 9, 3, 3, 1, 1])
    assert [np.flatnonzero(mask).tolist() for mask in slices.values()] == [[1], [2], [0, 3, 4, 5]]
    assert sum(mask.sum() for mask in slices.values()) == 6
    labelled = np.array([True, False, False])
    warm, cold = feedback_slices([[0, 1], [2]], labelled).values()
    assert (warm.tolist(), cold.tolist()) == ([True, False], [False, True])


@pytest.mark.parametrize("wrong", [{"evidence": 0.6}, {"versions": 0}, {"growth": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        UpdateSettings(**wrong)
