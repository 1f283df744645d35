"""What a server tells of the update that made its index."""

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.nightly import Versions, roll_back
from gnnretrieval.nightly.moved import MovedQuestion, moved_most, read_moved
from gnnretrieval.serve import create_app
from gnnretrieval.serve.served import open_version
from tests.killed_runs import Killed


def told(place):
    """Status and answer of a server over a search or an index."""
    with TestClient(create_app(open_version(lambda: Retriever.open(place), 0))) as client:
        response = client.get("/update")
        assert client.get("/health").json()["update"] is (response.status_code == 200)
        return response.status_code, response.json()


def test_the_questions_whose_first_relevant_passage_moved_most_come_first():
    candidate, served = np.array([1, 1 / 3, 0, 0.5, 0, 1]), np.array([1 / 7, 1 / 2, 1, 0.5, 0, 0])
    assert moved_most("abcdef", candidate, served) == [
        MovedQuestion(question="c", before=1, after=None),
        MovedQuestion(question="f", before=None, after=1),
        MovedQuestion(question="a", before=7, after=1),
        MovedQuestion(question="b", before=2, after=3),
    ]
    assert len(moved_most([str(number) for number in range(20)], np.ones(20), np.zeros(20))) == 5


def test_a_server_tells_when_the_index_was_updated_and_what_moved_for_whom(two_nights):
    search, report = two_nights
    status, answer = told(search.run.path)
    assert (status, answer["number"], answer["decision"]) == (200, 2, report.decision())
    assert answer["when"].replace("Z", "+00:00") == search.run.ledger()[-1]["when"]
    assert (answer["gate"]["gain"], answer["gate"]["questions"]) == (report.gate.gain, report.gate.questions)
    assert [one["name"] for one in answer["gate"]["slices"]] == [one.name for one in report.gate.slices]
    questions = {one.text for one in Dataset.open(search.run.place(2) / "dataset").queries_of("test")}
    assert 0 < len(answer["moved"]) <= 5
    assert {one["question"] for one in answer["moved"]} <= questions
    assert all(one["before"] != one["after"] for one in answer["moved"])
    first = answer["moved"][0]
    assert first["after"] is not None
    assert first["before"] is None or first["before"] > first["after"]


def test_reports_and_the_ledger_have_no_texts(two_nights):
    run = two_nights[0].run
    text = read_moved(run.place(2))[0].question
    for file in (run.path / "ledger.jsonl", run.report_place(2)):
        assert text not in file.read_text(encoding="utf-8")


def test_the_update_is_that_of_the_served_version_after_nights_without_news_and_a_rollback(search):
    before = told(search.run.path)
    search.update()
    assert told(search.run.path) == before
    roll_back(search.run.path, 1)
    status, answer = told(search.run.path)
    assert (status, answer["number"], answer["moved"]) == (200, 1, [])


def test_passages_by_the_old_model_move_no_question(search):
    search.set_passages(new="zu zu zu")
    search.update()
    _, answer = told(search.run.path)
    assert (answer["number"], answer["moved"]) == (3, [])
    assert "by the old model" in answer["decision"]


def test_a_report_that_is_written_after_the_version_is_served_is_found_then(search):
    place = search.run.report_place(2)
    text = place.read_bytes()
    place.write_text(json.dumps({"no": "report"}))
    with TestClient(create_app(Retriever.open(search.run.path))) as client:
        assert client.get("/health").json()["update"] is False
        assert client.get("/update").json()["error"]["code"] == "no_update"
        place.write_bytes(text)
        assert client.get("/update").json()["number"] == 2


def test_the_next_update_does_not_report_for_one_that_was_killed_before_its_report(search, monkeypatch):
    search.set_passages(new="zu zu zu")
    with monkeypatch.context() as patch:
        patch.setattr(Versions, "prune", lambda run, keep: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            search.update()
    assert (search.run.promoted, search.update().outcome) == (3, "nothing")
    assert told(search.run.path)[0] == 404  # and not that nothing was promoted


def test_of_an_index_that_no_update_made_nothing_is_told(tiny_run):
    status, answer = told(tiny_run)
    assert (status, answer["error"]["code"]) == (404, "no_update")
