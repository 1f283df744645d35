"""POST /feedback: who may give thumbs, what is refused, and what an import makes of them."""

import json
import logging
import os

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from gnnretrieval.data import Dataset
from gnnretrieval.feedback import FeedbackSettings, import_feedback
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.serve.schemas import FeedbackRequest
from gnnretrieval.serve.settings import MAX_K, MAX_QUESTION

TOKEN = "0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}"}
GIVEN = {"question": "zu zu", "shown": ["p03", "p07"], "passage": "p07", "thumb": "up", "session": "session-1"}


@pytest.fixture
def log(tmp_path):
    return tmp_path / "thumbs.jsonl"


@pytest.fixture
def client(retriever, log):
    app = create_app(retriever, ServeSettings(token=TOKEN, feedback=log))
    with TestClient(app, headers=BEARER, raise_server_exceptions=False) as client:
        yield client


def test_a_thumb_is_written_with_its_time_and_version(client, log):
    response = client.post("/feedback", json=GIVEN)
    assert response.status_code == 200, response.text
    answer, line = response.json(), json.loads(log.read_text())
    assert answer["version"] == response.headers["index-version"]
    assert line == {
        "time": answer["when"].replace("Z", "+00:00"),
        "session": "session-1",
        "query": "zu zu",
        "shown": ["p03", "p07"],
        "thumbs": {"p07": "up"},
        "version": answer["version"],
    }
    assert client.get("/health").json()["feedback"] is True


def test_it_is_off_unless_it_is_asked_for(retriever):
    with TestClient(create_app(retriever)) as client:
        response = client.post("/feedback", json=GIVEN)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "no_feedback")
        assert client.get("/health").json()["feedback"] is False


def test_it_wants_a_token_to_be_set_and_to_be_given(client, log):
    with pytest.raises(ValidationError, match="feedback wants a token"):
        ServeSettings(feedback=log)
    for headers in ({"authorization": ""}, {"authorization": f"Bearer {TOKEN}0"}):
        response = client.post("/feedback", json=GIVEN, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "no_token")
    assert log.read_bytes() == b""


def test_the_description_has_an_example_that_is_valid(client):
    described = client.get("/openapi.json").json()["components"]["schemas"]["FeedbackRequest"]
    (example,) = described["examples"]
    assert FeedbackRequest.model_validate(example).model_dump() == example


@pytest.mark.parametrize(
    ("changed", "status", "says"),
    [
        ({"passage": "p99", "shown": ["p03", "p99"]}, 404, "There is no passage 'p99'."),
        ({"shown": ["p99", "p07"]}, 404, "There is no passage 'p99'."),
        ({"shown": ["p03"]}, 422, "the passage is not one of the shown ones"),
        ({"shown": ["p07", "p07"]}, 422, "a passage is twice in shown"),
        ({"shown": []}, 422, "shown: "),
        ({"shown": ["p07", *map(str, range(MAX_K))]}, 422, "shown: "),
        ({"shown": ["p07", "\ud800"]}, 422, ""),
        ({"shown": ["p07", "p" * 1001]}, 422, "shown: "),
        ({"question": " "}, 422, "question: it has no words"),
        ({"question": "a" * (MAX_QUESTION + 1)}, 422, "question: "),
        ({"question": "\ud800"}, 422, ""),
        ({"thumb": "sideways"}, 422, "thumb: "),
        ({"thumb": 1}, 422, "thumb: "),
        ({"session": "short"}, 422, "session: "),
        ({"session": "a" * 101}, 422, "session: "),
        ({"session": "anna.b@example.org"}, 422, "session: "),
        ({"session": "session-1\n"}, 422, "session: "),
        ({"time": "2026-03-01T09:30:00Z"}, 422, "time: "),
    ],
)
def test_what_is_not_as_described_is_a_sentence_and_writes_nothing(client, log, changed, status, says):
    response = client.post(
        "/feedback", content=json.dumps(GIVEN | changed), headers={"content-type": "application/json"}
    )
    assert response.status_code == status, response.text
    assert says in response.json()["error"]["message"]
    assert log.read_bytes() == b""


def test_a_disk_that_fails_is_an_error_and_the_log_says_why(client, log, monkeypatch, caplog):
    def fail(descriptor):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(os, "fsync", fail)
        response = client.post("/feedback", json=GIVEN)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "not_written")
    assert str(log) not in response.text
    assert f"Feedback was not written to {log}: [Errno 28] No space left on device" in caplog.text
    assert log.read_bytes() == b""
    assert client.post("/feedback", json=GIVEN).status_code == 200


def test_thumbs_become_labels_and_hard_negatives(client, log, tiny_dataset, tmp_path):
    questions = [query.text for query in Dataset.open(tiny_dataset).queries_of("test")][:4]
    good, bad, unsure = {}, {}, {}
    for question in questions:
        shown = [hit["id"] for hit in client.post("/search", json={"question": question, "k": 6}).json()["hits"]]
        good[question], bad[question], unsure[question] = shown[2], shown[0], shown[1]

        def give(session, passage, thumb, question=question, shown=shown):
            its = {"question": question, "shown": shown, "passage": passage, "thumb": thumb, "session": session}
            assert client.post("/feedback", json=its).status_code == 200

        for number in range(8):
            give(f"session-{number}", good[question], "up")
            give(f"session-{number}", bad[question], "up")
            give(f"session-{number}", bad[question], "down")  # the last one counts
            give(f"session-{number}", unsure[question], "up")
            give(f"session-{number}", unsure[question], "withdrawn")
    made = import_feedback([log], tiny_dataset, tmp_path / "made", FeedbackSettings(dev_share=0, test_share=0))
    figures = made.report.cleaning
    assert (figures.events, figures.impressions, figures.sessions) == (160, 32, 8)
    assert (figures.clicks_outside, figures.unknown_passages) == (0, 0)
    dataset = Dataset.open(made.path)
    judged = {query.text: dataset.split("train")[query.id] for query in dataset.queries()}
    assert set(judged) == set(questions)
    for question, its in judged.items():
        assert [passage for passage, value in its.items() if value > 0] == [good[question]]
        assert its[bad[question]] == its[unsure[question]] == 0
