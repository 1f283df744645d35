import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import bootstrap_interval, effect_size, holm, paired_test


def by_query(values):
    return {f"q{n}": value for n, value in enumerate(values)}


A = by_query([0.9, 0.8, 0.5, 1.0, 0.4])
B = by_query([0.5, 0.6, 0.5, 0.7, 0.5])


def test_t_test_by_hand():
    # Differences 0.4, 0.2, 0, 0.3, -0.1: mean 0.16, variance 0.043, t = 0.16 / sqrt(0.043 / 5) = 1.72532 with 4
    # degrees of freedom, whose two-sided p has the closed form 1 - s (1.5 - s² / 2), s = t / sqrt(4 + t²).
    t = 0.16 / (0.043 / 5) ** 0.5
    s = t / (4 + t * t) ** 0.5
    result = paired_test(A, B)
    assert result.p == pytest.approx(1 - s * (1.5 - s * s / 2), abs=1e-12)
    assert result.p == pytest.approx(0.159553, abs=1e-6)
    assert result.difference == pytest.approx(0.16)
    assert (result.wins, result.ties, result.losses) == (3, 1, 1)


def test_students_sleep_data():
    # Student (1908): the two drugs' extra hours of sleep; t = -4.0621, p = 0.002833 as R's t.test prints it.
    first = by_query([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = by_query([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    result = paired_test(first, second)
    assert result.p == pytest.approx(0.002833, abs=5e-7)
    assert result.difference == pytest.approx(-1.58)
    assert (result.wins, result.ties, result.losses) == (0, 1, 9)


def test_pairs_are_made_by_query_id_and_not_by_order():
    assert paired_test(A, dict(reversed(B.items()))) == paired_test(A, B)


@pytest.mark.parametrize("method", ["t", "randomisation"])
@pytest.mark.parametrize("values", [A, by_query([0.1] * 9), by_query([0.3])])
def test_identical_values_give_one(method, values):
    result = paired_test(values, dict(values), method)
    assert (result.difference, result.p, result.ties) == (0.0, 1.0, len(values))


def test_one_query_says_nothing_and_a_constant_gain_has_no_variance(recwarn):
    assert paired_test({"q": 1.0}, {"q": 0.0}).p == 1.0
    assert paired_test(by_query([1.0] * 8), by_query([0.5] * 8)).p == 0.0
    assert not recwarn


def test_randomisation_of_few_queries_counts_every_assignment():
    differences = [A[query] - B[query] for query in A]
    observed = abs(sum(differences))
    flips = [abs(np.dot(signs, differences)) for signs in itertools.product([1, -1], repeat=5)]
    expected = sum(flip >= observed - 1e-9 for flip in flips) / 32
    assert paired_test(A, B, "randomisation").p == pytest.approx(expected)
    assert expected == pytest.approx(0.25)  # 2 of 16 ways reach 0.8 in size on either side, twice for the tie


def test_randomisation_of_many_queries_agrees_with_the_t_test_and_is_repeatable():
    rng = np.random.default_rng(3)
    a = by_query(rng.normal(0.06, 0.5, 300).tolist())
    b = by_query(rng.normal(0.0, 0.5, 300).tolist())
    first = paired_test(a, b, "randomisation", seed=1)
    assert first == paired_test(a, b, "randomisation", seed=1)
    assert first.p != paired_test(a, b, "randomisation", seed=2).p
    assert first.p == pytest.approx(paired_test(a, b).p, abs=0.03)
    assert first.p == pytest.approx(paired_test(b, a, "randomisation", seed=1).p, abs=0.03)


measured = st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 1.0])] * 2), min_size=2, max_size=60)


@given(measured)
def test_the_t_test_is_scipys(pairs):
    a, b = zip(*pairs, strict=True)
    assume(np.ptp(np.subtract(a, b)) > 0)
    assert paired_test(by_query(a), by_query(b)).p == stats.ttest_rel(a, b).pvalue


@settings(max_examples=30)
@given(measured.map(lambda pairs: pairs[:10]))
def test_the_randomisation_of_few_queries_is_scipys(pairs):
    a, b = map(np.array, zip(*pairs, strict=True))
    expected = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert paired_test(by_query(a), by_query(b), "randomisation").p == pytest.approx(min(expected, 1.0), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.06])
def test_the_randomisation_of_many_queries_is_scipys_within_what_is_left_to_chance(shift):
    random = np.random.default_rng(5)
    a = random.choice([0.0, 0.5, 1.0], 200)
    b = np.where(random.random(200) < 0.6, a, random.choice([0.0, 0.5, 1.0], 200)) - shift
    expected = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=10_000, rng=random
    ).pvalue
    spread = (expected * (1 - expected) / 10_000) ** 0.5
    assert paired_test(by_query(a), by_query(b), "randomisation").p == pytest.approx(expected, abs=6 * spread + 2e-4)


@given(measured)
def test_the_effect_size_is_what_the_t_statistic_is_made_of(pairs):
    a, b = map(np.array, zip(*pairs, strict=True))
    assume(np.ptp(a - b) > 0)
    assert effect_size((a - b).tolist()) == pytest.approx(stats.ttest_rel(a, b).statistic / len(a) ** 0.5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_his_procedure_rejects(ps):
    # Holm 1979: smallest first, reject while p ≤ level / (m - i + 1), and stop at the first that is not.
    for level in (0.01, 0.05, 0.3):
        ordered = sorted(range(len(ps)), key=ps.__getitem__)
        small = [ps[index] * (len(ps) - place) <= level for place, index in enumerate(ordered)]
        rejected = ordered[: [*small, False].index(False)]
        assert set(rejected) == {index for index, p in enumerate(holm(ps)) if p <= level}


def test_a_resampled_p_is_never_zero():
    gain = by_query([1.0] * 40)
    assert paired_test(gain, by_query([0.0] * 40), "randomisation").p == pytest.approx(1 / 10_001)


def test_systems_on_different_queries_are_an_error():
    with pytest.raises(InputError, match="'q5' is in one only"):
        paired_test({**A, "q5": 1.0}, B)
    with pytest.raises(InputError, match="at least one query"):
        paired_test({}, {})


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_holm_by_hand_with_equal_ps_and_a_step_that_is_raised_to_the_one_before():
    # Smallest first: 6 x 0.00001, 5 x 0.0004, 4 x 0.02, 3 x 0.03, 2 x 0.03 raised to 0.09, 1 x 0.2.
    ps = [0.00001, 0.2, 0.02, 0.03, 0.03, 0.0004]
    assert holm(ps) == pytest.approx([0.00006, 0.2, 0.08, 0.09, 0.09, 0.002])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_lies_between_p_and_bonferroni(ps):
    corrected = holm(ps)
    for p, p_holm in zip(ps, corrected, strict=True):
        assert p <= p_holm <= min(1.0, p * len(ps))
    assert [p for _, p in sorted(zip(ps, corrected, strict=True))] == sorted(corrected)


def test_the_bootstrap_interval_is_scipys():
    values = np.random.default_rng(3).beta(2, 5, 300)
    found = bootstrap_interval(values.tolist())
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(0), batch=2**22 // 300
    ).confidence_interval
    assert found == (expected.low, expected.high)
    normal = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert found[1] - found[0] == pytest.approx(2 * normal, rel=0.1)


def test_values_that_do_not_vary_have_no_spread():
    assert bootstrap_interval([0.4, 0.4]) == (0.4, 0.4)
    assert bootstrap_interval([]) == (0.0, 0.0)
    assert effect_size([0.4, 0.4]) is None
    assert effect_size([0.1, 0.3]) == pytest.approx(0.2 / np.std([0.1, 0.3], ddof=1))
