"""The event store: every event once, without sessions, and without what was to be forgotten."""

import json
import time

import pytest

from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.feedback.events import EventLog
from gnnretrieval.feedback.store import EventStore
from tests.killed_runs import Killed


@pytest.fixture
def store(tmp_path):
    return EventStore(tmp_path / "events")


def log(path, *lines, **more):
    """A log of lists; a line is a time, a session and a question."""
    records = [
        {"time": time, "session": session, "query": query, "shown": ["a", "b"], "clicked": ["b"], **more}
        for time, session, query in lines
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return EventLog(path)


def stored(store):
    return sorted((event.time, event.question) for log in store.logs() for event in log.events())


def test_logs_may_overlap_and_events_that_a_log_has_twice_stay_two(store, tmp_path):
    twice = ((1, "", "x"), (1, "", "x"), (2, "s", "y"))
    first = store.add([log(tmp_path / "a.jsonl", *twice)])
    assert (first.read, first.added, first.stored) == (3, 3, 3)
    again = store.add([log(tmp_path / "a.jsonl", *twice), log(tmp_path / "b.jsonl", *twice[1:], (3, "s", "z"))])
    assert (again.read, again.added, again.known, again.stored) == (6, 1, 5, 4)
    assert stored(store) == [(1, "x"), (1, "x"), (2, "y"), (3, "z")]


def test_events_are_read_back_as_they_were_logged_except_for_the_session(store, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "time,session,query,passage,position,clicked,dwell\n5,me,What is it,p1,1,true,3\n5,me,What is it,p2,2,false,\n"
    )
    store.add([EventLog(path)])
    before, after = list(EventLog(path).events()), [event for one in store.logs() for event in one.events()]
    assert [event._replace(session="") for event in before] == [event._replace(session="") for event in after]
    assert len({event.session for event in after}) == 1
    assert store.logs()[0].has_lists
    assert not any('"me"' in one.path.read_text() for one in store.logs())


def test_old_events_go_and_personal_data_is_masked_before_it_is_written(store, tmp_path):
    store.add([log(tmp_path / "a.jsonl", (1, "s", "old"), (9, "s", "mail me@example.org"))], redact=True)
    assert stored(store) == [(1, "old"), (9, "mail [email]")]
    figures = store.add([log(tmp_path / "b.jsonl", (2, "s", "old too"), (10, "s", "new"))], keep_from=5.0)
    assert (figures.too_old, figures.deleted, figures.added, figures.stored) == (1, 1, 1, 2)
    assert stored(store) == [(9, "mail [email]"), (10, "new")]


def test_what_is_forgotten_is_not_added_again_by_a_log_that_still_has_it(store, tmp_path):
    lines = ((1, "s", "x"), (2, "t", "y"), (3, "u", "mail me@example.org"))
    store.add([log(tmp_path / "a.jsonl", *lines)], redact=True)
    assert store.forget(["s"], ["Mail  me@example.org?"]) == 2
    assert (store.epoch, stored(store)) == (1, [(2, "y")])
    again = store.add([log(tmp_path / "a.jsonl", *lines)], redact=True)
    assert (again.forgotten, again.known, again.added) == (2, 1, 0)
    assert store.forget(["nobody"], []) == 0
    assert store.epoch == 1


def test_what_is_forgotten_stays_away_where_the_log_has_local_times_ahead_of_the_clock(store, tmp_path):
    ahead = time.time() + 3600
    lines = ((ahead, "s", "x"), (ahead + 60, "s", "y"), (ahead, "t", "z"))
    store.add([log(tmp_path / "a.jsonl", *lines)])
    assert store.forget(["s"], []) == 2
    again = store.add([log(tmp_path / "a.jsonl", *lines, (ahead + 61, "s", "later"))])
    assert (again.forgotten, again.known, again.added) == (2, 1, 1)
    assert stored(store) == [(ahead, "z"), (ahead + 61, "later")]


def test_names_without_events_are_told_beside_those_that_are_forgotten(store, tmp_path, said):
    store.add([log(tmp_path / "a.jsonl", (1, "s", "x"), (2, "t", "y"))])
    assert store.forget(["s", "nobody"], ["Y", "never asked"]) == 2
    assert said == ["no event in the store is of 'never asked'", "no event in the store is of 'nobody'"]


def test_an_event_with_two_numbers_in_one_is_added_once(store, tmp_path):
    lines = ((1, "s", "call 030 1234567+49 30 123456"),)
    assert store.add([log(tmp_path / "a.jsonl", *lines)], redact=True).added == 1
    assert store.add([log(tmp_path / "a.jsonl", *lines)], redact=True).added == 0


def test_an_event_is_known_whether_it_was_masked_before_or_not(store, tmp_path):
    lines = ((1, "s", "mail me@example.org"), (2, "s", "ﬁne"))
    for redact in (False, True, False):
        store.add([log(tmp_path / "a.jsonl", *lines)], redact=redact)
    assert len(stored(store)) == 2
    store.add([log(tmp_path / "b.jsonl", (3, "s", "call 555-123-4567"))], redact=True)
    again = store.add([log(tmp_path / "b.jsonl", (3, "s", "call 555-123-4567"))])
    assert (again.known, again.stored) == (1, 3)


def test_what_has_no_name_cannot_be_forgotten(store, tmp_path):
    store.add([log(tmp_path / "a.jsonl", (1, "", "x"), (2, "", "?"), (3, "", "y"))])
    assert store.forget(["", "s"], ["x", "?"]) == 1
    again = store.add([log(tmp_path / "b.jsonl", (1, "", "x"), (2, "", "?"), (3, "", "y"), (4, "", "z"))])
    assert (again.forgotten, again.known, again.added) == (1, 2, 1)
    assert stored(store) == [(2, "?"), (3, "y"), (4, "z")]


def test_what_a_killed_forget_left_is_deleted_by_whoever_holds_the_store_next(store, tmp_path, monkeypatch):
    store.add([log(tmp_path / "a.jsonl", (1, "s", "x"), (2, "t", "y"), (3, "u", "z"))])
    with monkeypatch.context() as patch:
        patch.setattr(EventStore, "_keep", lambda self, is_kept: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            store.forget(["s"], ["Z"])
    assert len(stored(store)) == 3
    store.finish_forgetting()
    assert (store.epoch, stored(store)) == (1, [(2, "y")])
    assert "pending" not in (store.path / "forgotten.json").read_text()


def test_a_dry_run_and_a_damaged_line(store, tmp_path):
    assert store.add([log(tmp_path / "a.jsonl", (1, "s", "x"))], dry_run=True).added == 1
    assert not store.path.exists()
    store.add([log(tmp_path / "a.jsonl", (1, "s", "x"))])
    file = store.logs()[0].path
    file.write_text('{"time": 1}\n')
    with pytest.raises(ArtifactError, match=f"{file}:1: this line is damaged"):
        list(store.logs()[0].events())


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("key", "no hexadecimal", "damaged; wanted the key of the hashes"),
        ("forgotten.json", "{", "this is no record of forgotten events"),
        ("forgotten.json", '{"times": "1"}', "damaged; wanted how often events were forgotten"),
    ],
)
def test_damaged_records_of_the_store_are_one_sentence(name, written, message, store, tmp_path):
    store.add([log(tmp_path / "a.jsonl", (1, "s", "x"))])
    (store.path / name).write_text(written)
    with pytest.raises(GnnRetrievalError, match=message):
        store.add([log(tmp_path / "a.jsonl", (1, "s", "x"))])
