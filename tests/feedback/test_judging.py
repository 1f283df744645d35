import numpy as np
import pytest
from scipy.stats import gamma

from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.click_rates import ClickRates, Votes, click_rates, count_votes
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.judging import judge, label_chances
from gnnretrieval.feedback.propensities import PositionFigures, Propensities
from gnnretrieval.feedback.settings import FeedbackSettings

HALF = Propensities(
    tuple(
        PositionFigures(position=k, impressions=1, clicks=1, swapped=1, propensity=1 / k, low=0, high=1) for k in (1, 2)
    )
)


def votes(*shown, times=1, question="q"):
    """Impressions; a passage is its name, its position, and ``!`` if it was clicked."""
    rows = tuple(
        Shown(one[0], int(one[1]), "!" in one, 2.0 if "~" in one else None, -1 if "-" in one else 0) for one in shown
    )
    return [Impression(question, float(number), rows) for number in range(times)]


def judged(impressions, bias=HALF, has_lists=True, **settings):
    votes = count_votes(impressions, bias, has_lists)
    found = judge(votes, click_rates(votes), FeedbackSettings(**settings))
    return {one.passage if one.question == "q" else (one.question, one.passage): one for one in found}


def test_the_rate_is_clicks_over_examinations_shrunk_to_the_mean():
    found = judged(votes("a1", "b2!", times=4) + votes("a1!", "b2"), prior_strength=2)
    mean = 5 / (5 + 2.5)
    assert (found["b"].clicks, found["b"].examined) == (4, 2.5)
    assert found["b"].rate == pytest.approx((4 + 2 * mean) / (2.5 + 2))
    assert found["a"].rate == pytest.approx((1 + 2 * mean) / (5 + 2))
    assert found["b"].low == pytest.approx(gamma.ppf(0.1, 4 + 2 * mean, scale=1 / 4.5))


def test_a_click_below_counts_more_than_one_above():
    found = judged(votes("a1!", "b2!", times=3))
    assert found["b"].rate > found["a"].rate
    plain = judged(votes("a1!", "b2!", times=3), Propensities(()))
    assert plain["b"].rate == plain["a"].rate


def test_relevant_is_what_is_surely_clicked_and_near_the_best_of_its_question():
    often = votes("a1!", "b2", times=7) + votes("a1!", "b2!", times=3) + votes("c1", "d2", times=40)
    found = judged(often)
    assert [found[one].verdict for one in "abcd"] == ["relevant", "undecided", "not relevant", "not relevant"]
    assert [found[one].relevance for one in "abc"] == [min(10, round(10 * found["a"].rate)), None, 0]
    assert judged(often, of_best=0.1)["b"].verdict == "relevant"
    assert judged(often, level=2.0)["a"].verdict == "undecided"


def test_once_shown_is_no_hard_negative():
    its = votes("a1!", "b2")
    assert judged(its)["b"].verdict == "undecided"


def test_a_short_click_speaks_neither_for_nor_against():
    its = votes("a1!", "b1!~", "c1", times=30)
    found = judged(its)
    assert (found["b"].clicks, found["b"].examined, found["b"].verdict) == (0, 0, "undecided")
    assert found["c"].verdict == "not relevant"


def test_a_thumb_down_is_an_examination_without_a_click():
    found = judged(votes("a2", "b2-", times=3) + votes("a1!", "b1!"))
    assert found["b"].examined == pytest.approx(3 + 1)
    assert found["a"].examined == pytest.approx(1.5 + 1)
    assert found["b"].rate < found["a"].rate


def test_clicks_alone_are_compared_within_their_question():
    its = votes("a1!", times=9) + votes("b1!") + votes("c1!", times=9, question="r")
    found = judged(its, Propensities(()), has_lists=False)
    assert (found["a"].examined, found["b"].examined) == (10, 10)
    assert found["a"].verdict == found["r", "c"].verdict == "relevant"
    assert found["b"].verdict == "undecided"
    assert judged([]) == {}


def test_a_label_must_be_clicked_more_than_what_is_no_answer():
    votes_of = count_votes(votes("a1!", "b2", times=9), HALF)
    rates = click_rates(votes_of)
    (found, _) = judge(votes_of, rates.model_copy(update={"background": 0.3}), FeedbackSettings())
    assert (found.low > 0.45, found.verdict) == (True, "relevant")
    (found, _) = judge(votes_of, rates.model_copy(update={"background": 0.6}), FeedbackSettings())
    assert (found.low < 0.9, found.verdict) == (True, "undecided")


def test_the_chance_of_a_label_is_how_often_drawn_clicks_get_one():
    rates = ClickRates(mean=0.3, background=0.1, attractive=0.6, share_attractive=0.3, share_background_clicks=0.2)
    settings, rng = FeedbackSettings(), np.random.default_rng(0)
    examined = np.array([0.2, 1.5, 4.0])
    for value, chance in zip(examined, label_chances(examined, rates, settings), strict=True):
        pairs = [(f"q{number}", "a") for number in range(2000)]
        clicks = rng.poisson(rates.attractive * value, len(pairs))
        full = np.full(len(pairs), value)
        drawn = Votes(pairs, full.astype(np.int64), clicks, full, np.zeros(len(pairs), dtype=bool), True)
        found = judge(drawn, rates, settings)
        assert chance == pytest.approx(sum(one.verdict == "relevant" for one in found) / len(found), abs=0.04)
