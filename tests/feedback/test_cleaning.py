import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from gnnretrieval.feedback.cleaning import clean, question_key
from gnnretrieval.feedback.events import Event, Shown
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.feedback.values import WITHDRAWN

PASSAGES = {"a", "b", "c"}


def event(question="q", time=0.0, session="s", shown="abc", clicked="", dwell=None, thumbs=None, id_=""):
    rows = [
        Shown(one, place, one in clicked, (dwell or {}).get(one), (thumbs or {}).get(one, 0))
        for place, one in enumerate(shown, 1)
    ]
    return Event(question, id_, time, session, tuple(rows), 0)


def cleaned(*events, redact=False, keep_from=None, **settings):
    return clean(events, PASSAGES, FeedbackSettings(**settings), redact=redact, keep_from=keep_from)


def shown(its):
    return {one.passage: one for one in its.impressions[0].shown}


def test_one_vote_a_session_and_question_with_all_its_clicks_and_the_highest_positions():
    its = cleaned(event(clicked="b"), event(question="Q?", time=9, shown="cba", clicked="c"))
    assert len(its.impressions) == 1
    assert {name: (one.position, one.clicked) for name, one in shown(its).items()} == {
        "a": (1, False),
        "b": (2, True),
        "c": (1, True),
    }
    assert (its.figures.repeated, its.figures.questions, its.figures.spellings) == (1, 1, 2)


def test_rows_of_one_impression_are_no_repetition():
    rows = [event(shown=one) for one in "abc"]
    assert (cleaned(*rows).figures.repeated, len(cleaned(*rows).impressions)) == (0, 1)


def test_without_sessions_every_list_is_a_vote_and_so_are_the_rows_of_one_moment():
    lists = [event(session="", time=1), event(session="", time=2), event(session="", time=2)]
    assert len(cleaned(*lists).impressions) == 3
    rows = [event(session="", time=time, shown=one)._replace(is_whole=False) for time in (1, 2) for one in "abc"]
    assert [len(one.shown) for one in cleaned(*rows).impressions] == [3, 3]


def test_sessions_with_too_many_questions_a_minute_or_a_day_are_bots():
    burst = [event(question=f"q{number}", time=number, session="burst") for number in range(6)]
    slow = [event(question=f"q{number}", time=3600 * number, session="slow") for number in range(12)]
    person = [event(question=f"q{number}", time=61 * number, session="person") for number in range(8)]
    same = [event(question="again", time=number, session="same") for number in range(30)]
    its = cleaned(*burst, *slow, *person, *same, most_per_minute=5, most_per_day=8)
    assert (its.figures.bot_sessions, its.figures.bot_events) == (2, 18)
    assert its.figures.sessions == 2


def test_a_short_click_is_no_vote_but_a_thumb_is():
    its = shown(cleaned(event(clicked="abc", dwell={"a": 2.0, "b": 2.0, "c": 60.0}, thumbs={"b": 1})))
    assert (its["a"].dwell, its["b"].dwell, its["c"].dwell) == (2.0, None, None)


def test_the_last_thumb_counts():
    its = shown(cleaned(event(thumbs={"a": 1}), event(time=5, thumbs={"a": -1})))
    assert its["a"].thumb == -1


def test_a_thumb_that_was_taken_back_is_as_if_it_was_never_given():
    its = shown(cleaned(event(thumbs={"a": 1, "b": -1}), event(time=5, thumbs={"a": WITHDRAWN, "b": WITHDRAWN})))
    assert its == shown(cleaned(event()))
    its = shown(
        cleaned(event(thumbs={"a": 1}), event(time=5, thumbs={"a": WITHDRAWN}), event(time=6, thumbs={"a": -1}))
    )
    assert its["a"].thumb == -1
    clicked = shown(cleaned(event(clicked="a", thumbs={"a": -1}), event(time=5, thumbs={"a": WITHDRAWN})))
    assert clicked["a"].clicked


def test_what_cannot_be_used_is_dropped_and_counted():
    its = cleaned(
        event(time=1),
        event(question=" ? ", time=20),
        event(shown="axy", time=20),
        event(question="p", shown="x", time=20),
        keep_from=10,
    )
    figures = its.figures
    assert (figures.events, figures.too_old, figures.without_question) == (4, 1, 1)
    assert (figures.unknown_passages, figures.without_passage, figures.impressions) == (3, 1, 1)


def test_questions_are_masked_before_they_are_merged():
    its = cleaned(
        event(question="mail a@b.com", id_="a@b.com"), event(question="mail c@d.org", session="t"), redact=True
    )
    assert its.texts == {"mail [email]": "mail [email]"}
    assert its.ids == {"mail [email]": ["[email]"]}
    assert its.figures.redacted_questions == 2


@settings(max_examples=50)
@given(st.text(max_size=30))
def test_merging_is_idempotent_and_blind_to_form(text):
    key = question_key(text)
    assert question_key(key) == key
    assert question_key(f"  {unicodedata.normalize('NFKC', text)} ?! ") == key


@settings(max_examples=15)
@given(st.permutations(range(12)))
def test_the_order_of_events_decides_nothing(order):
    events = [
        event(
            question=f"Q{number % 3}{'?' * (number % 2)}",
            time=number // 2,
            session=f"s{number % 4}",
            clicked="abc"[number % 3],
        )
        for number in range(12)
    ]
    assert cleaned(*(events[number] for number in order)) == cleaned(*events)
