"""POST /answer: the reader's answer with its place, and what is said where there is none."""

import threading

import pytest
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.reader import NOTHING, Reader
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.serve import create_app
from gnnretrieval.serve.schemas import AnswerRequest
from gnnretrieval.serve.settings import MAX_QUESTION


@pytest.fixture(scope="module")
def reader(tiny_reader):
    return Reader(ReaderSettings(reader=str(tiny_reader), precision="float32", max_tokens=48, passages=3))


@pytest.fixture(scope="module")
def question(tiny_dataset):
    return next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text


@pytest.fixture(scope="module")
def client(retriever, reader):
    with TestClient(create_app(retriever, reader=reader), raise_server_exceptions=False) as client:
        yield client


def test_the_answer_is_the_retriever_s_with_its_passage(client, retriever, reader, question):
    response = client.post("/answer", json={"question": question})
    answer, expected = response.json(), retriever.answer(question, reader)
    assert response.status_code == 200, response.text
    assert answer["version"] == response.headers["index-version"]
    assert {name: answer[name] for name in expected._asdict()} == pytest.approx(expected._asdict())
    passage = retriever.passage(expected.passage)
    assert (answer["question"], answer["title"], answer["text"]) == (question, passage.title, passage.text)
    assert answer["text"][answer["start"] : answer["end"]] == answer["answer"] != ""
    assert answer["passages"] == 3
    assert client.get("/health").json()["reader"] is True


def test_it_is_off_unless_there_is_a_reader(retriever, question):
    with TestClient(create_app(retriever)) as client:
        response = client.post("/answer", json={"question": question})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "no_reader")
        assert client.get("/health").json()["reader"] is False


def test_passages_without_text_and_an_empty_ranking_have_no_answer(client, retriever, reader, question, monkeypatch):
    monkeypatch.setattr(reader, "read", lambda questions, passages: [NOTHING] * len(passages))
    response = client.post("/answer", json={"question": question})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "no_answer")
    assert response.json()["error"]["message"] == "None of the best passages has a text to find it in."
    monkeypatch.setattr(retriever, "search_all", lambda questions, k, system: [[] for _ in questions])
    response = client.post("/answer", json={"question": question})
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "No passage was found."


def test_no_ranking_waits_for_the_reader(client, reader, question, monkeypatch):
    reads, is_done, read, answers = threading.Event(), threading.Event(), reader.read, []

    def slow(questions, passages):
        reads.set()
        assert is_done.wait(60)
        return read(questions, passages)

    monkeypatch.setattr(reader, "read", slow)
    asking = threading.Thread(target=lambda: answers.append(client.post("/answer", json={"question": question})))
    asking.start()
    try:
        assert reads.wait(60)
        assert len(client.post("/search", json={"question": question}).json()["hits"]) == 10
        assert client.post("/compare", json={"question": question}).status_code == 200
        assert client.get("/passages/p03").status_code == 200
        assert answers == []
    finally:
        is_done.set()
        asking.join()
    assert answers[0].status_code == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "question: field required."),
        ({"question": " "}, "question: it has no words"),
        ({"question": "a" * (MAX_QUESTION + 1)}, "question: "),
        ({"question": "a", "k": 3}, "k: "),
    ],
)
def test_what_is_not_as_described_is_a_sentence(client, body, says):
    response = client.post("/answer", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["message"].startswith(says)


def test_the_description_has_an_example_that_is_valid(client):
    (example,) = client.get("/openapi.json").json()["components"]["schemas"]["AnswerRequest"]["examples"]
    assert AnswerRequest.model_validate(example).model_dump() == example


def test_an_index_without_a_graph_answers_too(tiny_run, reader, question):
    retriever = Retriever.open(tiny_run / "index-dual-encoder")
    with TestClient(create_app(retriever, reader=reader)) as client:
        answer = client.post("/answer", json={"question": question}).json()
    assert answer["passage"] == retriever.answer(question, reader).passage


def test_a_reader_that_fails_tells_nothing_of_the_server(client, reader, question, monkeypatch):
    monkeypatch.setattr(reader, "read", lambda questions, passages: 1 / 0)
    response = client.post("/answer", json={"question": question})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "failed")
