import numpy as np
import pytest

from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.propensities import MOST, estimate_propensities, placed


def drawn(theta, rng, count=2500, questions=40, swap=True, wrong=0.05, best=None):
    """Impressions by a position-based model, in random or fixed order; relevant is one of the first three passages."""
    made = []
    for number in range(count):
        question = int(rng.integers(questions))
        order = rng.permutation(len(theta)) if swap else np.arange(len(theta))
        gamma = np.where(order == (question % 3 if best is None else best), 0.9, wrong)
        clicked = rng.random(len(theta)) < theta * gamma
        its = [Shown(f"p{p}", k + 1, bool(clicked[k]), None, 0) for k, p in enumerate(order.tolist())]
        made.append(Impression(f"q{question}", float(number), tuple(its)))
    return made


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_planted_propensities_are_recovered(exponent):
    theta = 1 / np.arange(1, 7) ** exponent
    found = estimate_propensities(drawn(theta, np.random.default_rng(0)))
    assert found.is_estimated
    estimates = np.array([one.propensity for one in found.figures])
    assert estimates == pytest.approx(theta, rel=0.25, abs=0.02)
    inside = sum(one.low <= planted <= one.high for one, planted in zip(found.figures, theta, strict=True))
    assert inside >= 5


def test_better_passages_above_are_not_taken_for_position_bias():
    theta, rng = np.ones(3), np.random.default_rng(1)
    mostly_sorted = drawn(theta, rng, 2000, 30, swap=False, best=0) + drawn(theta, rng, 1000, 30, best=0)
    rates = [one.clicks / one.impressions for one in estimate_propensities(mostly_sorted).figures]
    assert rates[2] / rates[0] < 0.95  # what the click rate alone would say
    assert [one.propensity for one in estimate_propensities(mostly_sorted).figures] == pytest.approx([1] * 3, rel=0.15)


def test_without_swaps_nothing_is_corrected():
    found = estimate_propensities(drawn(1 / np.arange(1, 4), np.random.default_rng(0), 500, swap=False))
    assert not found.is_estimated
    assert [one.propensity for one in found.figures] == pytest.approx([1.0] * 3)


def test_without_positions_nothing_is_corrected():
    found = estimate_propensities([Impression("q", 0.0, (Shown("a", None, True, None, 0),))])
    assert found.figures == ()
    assert (found.at(None), found.at(7)) == (1.0, 1.0)


def test_the_hand_worked_case_of_one_pair():
    def seen(position, clicks, impressions):
        return [Impression("q", 0.0, (Shown("a", position, n < clicks, None, 0),)) for n in range(impressions)]

    # One pair, equally often at both positions: shares of clicks are θ's shares, but for the prior's half click each.
    found = estimate_propensities(seen(1, 80, 100) + seen(2, 20, 100))
    assert found.figures[1].propensity == pytest.approx(20.5 / 80.5, rel=0.02)
    # Twice as many impressions at the second position halve what its clicks count.
    found = estimate_propensities(seen(1, 80, 100) + seen(2, 20, 200))
    assert found.figures[1].propensity == pytest.approx(10 / 80, rel=0.05)
    assert [one.swapped for one in found.figures] == [80, 20]


def test_positions_below_the_last_count_as_the_last():
    its = [Impression("q", 0.0, (Shown("a", position, True, None, 0),)) for position in (1, MOST, MOST + 500)]
    assert placed(its).shown.tolist() == [1, 2]
    found = estimate_propensities(its)
    assert found.at(MOST + 500) == found.at(MOST) == found.figures[-1].propensity
