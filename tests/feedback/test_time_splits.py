import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.feedback.time_splits import Boundaries, boundaries, drift, split_by_time


def asked(question, time, shown="a", clicked=""):
    return Impression(question, float(time), tuple(Shown(one, 1, one in clicked, None, 0) for one in shown))


TEN = [asked(f"q{time}", time) for time in range(10)]


def test_shares_are_of_the_newest_impressions():
    assert boundaries(TEN, FeedbackSettings(dev_share=0.2, test_share=0.1)) == Boundaries(7.0, 9.0)
    assert boundaries(TEN, FeedbackSettings(dev_share=0, test_share=0)) == Boundaries(float("inf"), float("inf"))


def test_given_times_come_before_shares():
    settings = FeedbackSettings(dev_share=0.2, test_share=0.1)
    assert boundaries(TEN, settings, dev_from=2.0, test_from=5.0) == Boundaries(2.0, 5.0)
    assert boundaries(TEN, settings, test_from=5.0) == Boundaries(3.0, 5.0)
    with pytest.raises(InputError, match="dev begins after test"):
        boundaries(TEN, settings, dev_from=6.0, test_from=5.0)


def test_no_question_is_in_two_splits_and_train_knows_nothing_of_later_times():
    its = [asked("old", 1), asked("old", 4), asked("new", 5), asked("old", 8), asked("new", 9), asked("last", 9)]
    split = split_by_time(its, Boundaries(4.0, 8.0))
    assert {name: [(one.question, one.time) for one in part] for name, part in split.by_name.items()} == {
        "train": [("old", 1.0)],
        "dev": [("new", 5.0)],
        "test": [("last", 9.0)],
    }
    assert split.later == 3


def test_drift_is_against_all_that_came_before():
    its = [asked("q", 1, "ab", "a"), asked("q", 4, "ac", "c"), asked("r", 4, "b", "b"), asked("r", 8, "d", "d")]
    dev, test = drift(its, Boundaries(4.0, 8.0))
    assert (dev.split, dev.impressions, dev.new_questions, dev.share_new) == ("dev", 2, 1, 0.5)
    assert (dev.clicks, dev.share_clicks_on_unclicked, dev.share_clicks_on_unshown) == (2, 1.0, 0.5)
    assert (dev.passages, dev.new_passages) == (3, 1)
    assert (test.share_new, test.share_clicks_on_unshown, test.since) == (0.0, 1.0, "1970-01-01T00:00:08Z")
