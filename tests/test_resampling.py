import numpy as np
import pytest
from scipy import stats

from gnnretrieval.resampling import corrected_ps


def test_one_gain_has_the_p_of_a_paired_t_test():
    differences = np.random.default_rng(0).normal(0.08, 1, (1, 300))
    expected = stats.ttest_1samp(differences[0], 0, alternative="greater").pvalue
    assert 0.01 < expected < 0.3
    assert corrected_ps(differences)[0] == pytest.approx(expected, abs=0.01)
    assert corrected_ps(-differences)[0] == pytest.approx(1 - expected, abs=0.01)


def test_three_questions_are_no_evidence_and_no_difference_is_none():
    """All three gain: one of eight sign flips has as large a sum."""
    assert corrected_ps(np.array([[0.5, 0.5, 0.5]]))[0] == pytest.approx(1 / 8, abs=0.01)
    assert corrected_ps(np.zeros((2, 3))) == [1, 1]
    assert corrected_ps(np.ones((1, 1)))[0] == pytest.approx(0.5, abs=0.02)


def test_trying_the_same_many_times_costs_nothing_and_others_do():
    rng = np.random.default_rng(2)
    one = rng.normal(0.12, 1, 300)
    alone = corrected_ps(one[None])[0]
    assert corrected_ps(np.array([one] * 10)) == [alone] * 10
    with_others = corrected_ps(np.array([one, *rng.normal(0, 1, (9, 300))]))[0]
    assert alone < with_others < 10 * alone + 0.02
