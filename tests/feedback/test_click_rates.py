import numpy as np
import pytest

from gnnretrieval.feedback.click_rates import Votes, click_rates


def drawn(background, attractive, share, has_lists=True, pairs=4000):
    """Votes by the two-groups model."""
    rng = np.random.default_rng(0)
    examined = rng.exponential(3.0, pairs)
    rates = np.where(rng.random(pairs) < share, attractive, background)
    clicks = rng.poisson(examined * rates)
    names = [("q", str(number)) for number in range(pairs)]
    ones, none = np.ones(pairs, dtype=np.int64), np.zeros(pairs, dtype=np.bool_)
    return Votes(names, ones, clicks, examined, none, has_lists)


@pytest.mark.parametrize(("background", "attractive", "share"), [(0.05, 0.8, 0.1), (0.0, 0.3, 0.2), (0.2, 0.9, 0.5)])
def test_planted_rates_are_recovered(background, attractive, share):
    found = click_rates(drawn(background, attractive, share))
    assert found.background == pytest.approx(background, rel=0.15, abs=1e-3)
    assert found.attractive == pytest.approx(attractive, rel=0.1)
    assert found.share_attractive == pytest.approx(share, rel=0.15)
    planted = background * (1 - share) / (background * (1 - share) + attractive * share)
    assert found.share_background_clicks == pytest.approx(planted, abs=0.05)


def test_clicks_that_do_not_depend_on_the_passage_are_all_background():
    found = click_rates(drawn(0.2, 0.2, 0.5))
    assert found.background == pytest.approx(found.mean, rel=0.1)
    assert found.attractive < 2 * found.background


def test_without_lists_or_clicks_there_is_no_background():
    assert click_rates(drawn(0.2, 0.9, 0.5, has_lists=False)).background == 0.0
    assert click_rates(drawn(0.0, 0.0, 0.5)).background == 0.0
