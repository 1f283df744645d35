import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import gnnretrieval
from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.serve.settings import MAX_BODY, MAX_K, MAX_NEIGHBORS, MAX_QUESTION

STATIC = Path(gnnretrieval.__file__).parent / "serve" / "static"


@pytest.fixture(scope="module")
def client(retriever):
    with TestClient(create_app(retriever), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def questions(tiny_dataset):
    return [query.text for query in Dataset.open(tiny_dataset).queries_of("test")]


def error(response, status):
    """The error that a response must be, and nothing else: a code and one sentence."""
    assert response.status_code == status, response.text
    (name,) = response.json()
    assert name == "error"
    found = response.json()["error"]
    assert set(found) == {"code", "message"}
    assert found["message"].endswith(".")
    return found


def test_search_gives_what_the_retriever_ranks(client, retriever, questions):
    answer = client.post("/search", json={"question": questions[0], "k": 3}).json()
    assert (answer["question"], answer["system"]) == (questions[0], "gnn-encoder")
    expected = [hit._asdict() for hit in retriever.search(questions[0], 3)]
    assert answer["hits"] == [{name: hit[name] for name in answer["hits"][0]} for hit in expected]
    assert {"rank", "id", "title", "text", "score"} < set(answer["hits"][0])
    alone = client.post("/search", json={"question": questions[0], "k": 3, "system": "dual-encoder"}).json()
    ranked = [hit.id for hit in retriever.search(questions[0], 3, "dual-encoder")]
    assert (alone["system"], [hit["id"] for hit in alone["hits"]]) == ("dual-encoder", ranked)


def test_an_index_with_several_vectors_a_passage_is_served(questions_run, questions):
    retriever, system = Retriever.open(questions_run / "index"), "gnn-encoder"
    with TestClient(create_app(retriever), raise_server_exceptions=False) as client:
        answer = client.post("/search", json={"question": questions[0], "k": 3, "system": system}).json()
        ids = [hit.id for hit in retriever.search(questions[0], 3)]
        assert (answer["system"], [hit["id"] for hit in answer["hits"]]) == (system, ids)
        assert client.get("/health").json()["system"] == system
        compared = client.post("/compare", json={"question": questions[0], "k": 3}).json()
        assert [hit["id"] for hit in compared["gnn_encoder"]] == ids
        reasons = retriever.why(questions[0], retriever.search(questions[0], 3))
        matched = [None if why.matched is None else why.matched.text for why in reasons]
        assert [hit["matched"] for hit in compared["gnn_encoder"]] == matched
        assert any(matched)
        assert {hit["matched"] for hit in compared["dual_encoder"]} == {None}
        assert client.get("/graph").json()["no_what_if"] is None
        by_question = next(hit for hit in compared["gnn_encoder"] if hit["matched"])
        wanted = {"question": questions[0], "passage": by_question["id"], "scale": 0, "k": 3}
        tried = client.post("/what-if", json=wanted).json()
        scores = [{hit["id"]: hit["score"] for hit in tried[side]} for side in ("before", "after")]
        assert scores[0][by_question["id"]] > scores[1].get(by_question["id"], -1)


def test_search_in_the_address_gives_the_same(client, questions):
    asked = {"question": questions[0], "k": 3, "system": "dual-encoder"}
    posted, got = client.post("/search", json=asked).json(), client.get("/search", params=asked).json()
    assert got["hits"] == posted["hits"]
    assert got["system"] == "dual-encoder"
    assert "k" in error(client.get("/search", params={**asked, "k": "many"}), 422)["message"]
    assert error(client.get("/search", params={"k": 3}), 422)
    assert error(client.get("/search", params={**asked, "more": 1}), 422)


def test_compare_gives_both_rankings_and_the_rank_elsewhere(client, retriever, questions):
    answer = client.post("/compare", json={"question": questions[0], "k": 4}).json()
    expected = retriever.compare(questions[0], 4)
    assert answer["depth"] == expected.depth
    for name in ("dual_encoder", "gnn_encoder"):
        pairs = [(one.hit.id, one.elsewhere) for one in getattr(expected, name)]
        assert [(hit["id"], hit["elsewhere"]) for hit in answer[name]] == pairs


def test_a_known_question_comes_with_its_relevant_passages(tiny_run, retriever, client, questions, tmp_path):
    training = retriever.query("train-03").text
    answer = client.post("/compare", json={"question": training}).json()
    assert (answer["relevant"], answer["in_graph"], answer["unsure"]) == (["p03", "p30"], True, False)
    unknown = client.post("/compare", json={"question": questions[0]}).json()
    assert (unknown["relevant"], unknown["in_graph"]) == (None, False)
    run = shutil.copytree(tiny_run, tmp_path / "run")
    example = {"question": questions[0], "passage": "p07", "before": 3, "after": 1}
    (run / "examples.json").write_text(json.dumps([example]), encoding="utf-8")
    with TestClient(create_app(Retriever.open(run))) as client:
        answer = client.post("/compare", json={"question": f" {questions[0]}"}).json()
    assert (answer["relevant"], answer["in_graph"]) == (["p07"], False)


def test_a_question_unlike_all_training_questions_is_unsure(client, questions):
    answer = client.post("/compare", json={"question": "1 ? x"}).json()
    assert (answer["share_below"], answer["unsure"]) == (0.0, True)
    assert client.post("/compare", json={"question": questions[0]}).json()["share_below"] > 0.01


def test_sixteen_at_once_get_what_each_gets_alone_and_are_batched(retriever, questions):
    asked = [{"question": question, "k": 3 + number % 2} for number, question in enumerate(questions * 2)][:16]
    settings = ServeSettings(batch_wait=0.2)
    with TestClient(create_app(retriever, settings)) as client, ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda body: client.post("/search", json=body).json()["hits"], asked))
        metrics = client.get("/metrics").text
    with TestClient(create_app(retriever)) as client:
        assert together == [client.post("/search", json=body).json()["hits"] for body in asked]
    count = next(line for line in metrics.splitlines() if line.startswith("gnnretrieval_batch_size_count"))
    assert float(count.split()[1]) < 16


def test_passages_and_queries_come_by_id(client, retriever):
    found = {name: value for name, value in retriever.passage("p03")._asdict().items() if name != "row"}
    assert client.get("/passages/p03").json() == {"version": retriever.index.hash[:12], **found}
    assert client.get("/queries/train-03").json()["split"] == "train"


@pytest.mark.parametrize(
    "path", ["/passages/p99", "/passages/a/b%2Fc", "/passages/%FF%00", "/queries/p03", "/graph/neighbors?id=nothing"]
)
def test_an_unknown_id_is_not_found(client, path):
    found = error(client.get(path), 404)
    assert found["code"] == "not_found"
    assert found["message"].startswith("There is no ")


def test_an_id_with_slashes_is_found(tiny_run, tmp_path):
    import sqlite3

    run = shutil.copytree(tiny_run, tmp_path / "run")
    texts = run / "index" / "texts.sqlite"
    shutil.copyfile(texts, run / "own")
    (run / "own").replace(texts)  # the copy may share its file with the graph's
    with sqlite3.connect(texts) as db:
        db.execute("UPDATE passages SET id = 'a/b?c#d e' WHERE id = 'p03'")
    with TestClient(create_app(Retriever.open(run))) as client:
        assert client.get("/passages/a/b%3Fc%23d%20e").json()["id"] == "a/b?c#d e"


def test_neighbors_are_those_of_the_graph_with_attention_gate_and_scale(client, retriever):
    answer = client.get("/graph/neighbors", params={"id": "p03", "most": 2}).json()
    expected = retriever.neighborhood("p03", most=2)
    assert [edge["id"] for edge in answer["neighbors"]] == [edge["id"] for edge in expected["neighbors"]]
    assert answer["neighbors"][0]["neighbors"][0]["attention"] > 0
    for name in ("mean_gate", "context_scale", "shift", "own_attention", "edges"):
        assert answer["node"][name] == expected["node"][name]
    query = client.get("/graph/neighbors", params={"id": answer["neighbors"][0]["id"], "kind": "query"}).json()
    assert query["node"]["kind"] == "query"
    assert query["node"]["mean_gate"] is None
    assert len(query["neighbors"]) == 5


def test_a_neighbour_s_long_text_is_cut_and_the_passage_s_own_is_not(tiny_run, tmp_path):
    import sqlite3

    run = shutil.copytree(tiny_run, tmp_path / "run")
    texts = run / "graph" / "texts.sqlite"
    shutil.copyfile(texts, run / "own")
    (run / "own").replace(texts)
    with sqlite3.connect(texts) as db:
        db.execute("UPDATE passages SET text = ?", ("word " * 1000,))
    meta = json.loads((run / "graph" / "meta.json").read_text())
    (run / "graph" / "meta.json").write_text(json.dumps({**meta, "sizes": {}}))
    with TestClient(create_app(Retriever.open(run))) as client:
        answer = client.get("/graph/neighbors", params={"id": "train-03", "kind": "query"}).json()
        assert {len(edge["text"]) for edge in answer["neighbors"]} == {400}
        around = client.get("/graph/neighbors", params={"id": answer["neighbors"][0]["id"]}).json()
        assert len(around["node"]["text"]) == 5000


def test_the_graph_s_figures_are_those_of_inspect(client, retriever):
    from gnnretrieval.graph import inspect_graph

    answer, expected = client.get("/graph").json(), inspect_graph(retriever.graph)
    for name in ("passages", "queries", "k", "edges", "dimension", "edge_features"):
        assert answer[name] == getattr(expected, name)
    assert answer["queries_per_passage"] == expected.queries_per_passage.mean
    assert answer["recall"] == expected.labelled_passage_among_neighbours["5"]
    assert [one["id"] for one in answer["most_found"]] == [one.id for one in expected.most_found]


def test_health_tells_what_is_served_and_no_path(client, tiny_checkpoint):
    answer = client.get("/health").json()
    assert (answer["status"], answer["passages"], answer["graph"]) == ("ready", 40, True)
    assert answer["gnnretrieval"] == gnnretrieval.__version__
    assert answer["reload"] is None
    assert answer["encoder"] == tiny_checkpoint.name
    assert str(tiny_checkpoint) not in json.dumps(answer)


@pytest.mark.parametrize("path", ["/health", "/", "/graph", "/nothing"])
def test_head_answers_as_get(client, path):
    asked, got = client.head(path), client.get(path)
    assert (asked.status_code, asked.headers["content-length"]) == (got.status_code, got.headers["content-length"])


def test_health_fails_when_no_question_is_answered_any_more(retriever):
    app = create_app(retriever)
    with TestClient(app) as client:
        assert client.get("/health").status_code == 200
    assert TestClient(app).get("/health").status_code == 503  # it was shut down


def test_metrics_count_requests_by_route_and_not_by_address(retriever):
    with TestClient(create_app(retriever)) as client:
        for id_ in ("p01", "p02", "nothing"):
            client.get(f"/passages/{id_}")
        client.get("/no/such/address")
        text = client.get("/metrics").text
    assert 'gnnretrieval_requests_total{path="/passages/{id}",status="200"} 2.0' in text
    assert 'gnnretrieval_requests_total{path="/passages/{id}",status="404"} 1.0' in text
    assert 'gnnretrieval_requests_total{path="other",status="404"} 1.0' in text
    assert 'gnnretrieval_request_seconds_bucket{le="0.005",path="/passages/{id}"}' in text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"question": ""}, "question: "),
        ({"question": " \t\n"}, "question: it has no words: give some."),
        ({"question": "a" * (MAX_QUESTION + 1)}, "question: string should have at most 10000 characters."),
        ({"question": "a", "k": 0}, "k: "),
        ({"question": "a", "k": MAX_K + 1}, "k: input should be less than or equal to 1000."),
        ({"question": "a", "k": "5"}, "k: input should be a valid integer."),
        ({"question": "a", "k": True}, "k: "),
        ({"question": "a", "k": 10**40}, "k: "),
        ({"question": None}, "question: "),
        ({"question": ["a"]}, "question: "),
        ({}, "question: field required."),
        ({"question": "a", "surprise": 1}, "surprise: "),
        ({"question": "a", "system": "bm25"}, "system: "),
        ([], "body: "),
    ],
)
def test_a_request_that_is_not_as_described_is_one_sentence(client, body, says):
    found = error(client.post("/search", json=body), 422)
    assert found["code"] == "invalid_request"
    assert found["message"].startswith(says)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"question":', 422),
        (b"", 422),
        (b"NaN", 422),
        (b'{"question": "\\ud800"}', 422),
        (b'{"question": "\xc3"}', 400),
    ],
)
def test_a_body_that_is_no_json_text_is_refused_in_a_sentence(client, body, status):
    found = error(client.post("/search", content=body, headers={"content-type": "application/json"}), status)
    assert len(found["message"].split()) >= 3


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_a_body_without_the_header_of_json_is_refused_with_the_header_to_add(client, headers):
    response = client.post("/search", content=json.dumps({"question": "a"}), headers=headers)
    assert error(response, 422)["message"] == "The body is not sent as JSON: add content-type: application/json."
    assert error(client.post("/search"), 422)["message"] == "body: field required."


def test_a_body_above_the_limit_is_refused_said_or_unsaid(client):
    def pieces():
        for _ in range(MAX_BODY // 1024 + 1):
            yield b"a" * 1024

    assert error(client.post("/search", content=b"a" * (MAX_BODY + 1)), 413)["code"] == "too_large"
    assert error(client.post("/search", content=pieces()), 413)["code"] == "too_large"


def test_a_question_of_a_hundred_thousand_words_is_refused_in_a_sentence(client):
    found = error(client.post("/search", json={"question": "word " * 100_000}), 413)
    assert found["message"] == "The request's body is above 262,144 bytes: ask less at once."


@pytest.mark.parametrize(
    "question", ["wie löst man ein Gleichungssystem?", "解线性方程组", "حل نظام", "🦀" * 50, "\u0000"]
)
def test_a_question_in_any_language_is_answered(client, question):
    response = client.post("/search", json={"question": question, "k": 3})
    assert response.status_code == 200
    assert len(response.json()["hits"]) == 3


def test_k_above_the_number_of_passages_gives_all(client, questions):
    assert len(client.post("/search", json={"question": questions[0], "k": MAX_K}).json()["hits"]) == 40


@pytest.mark.parametrize(
    "params", [{}, {"id": ""}, {"id": "p03", "most": 0}, {"id": "p03", "most": MAX_NEIGHBORS + 1}, {"id": "p" * 1001}]
)
def test_neighbors_have_limits(client, params):
    assert error(client.get("/graph/neighbors", params=params), 422)["code"] == "invalid_request"


def test_unknown_addresses_and_methods_are_sentences(client):
    assert error(client.get("/nothing"), 404)["code"] == "not_found"
    assert error(client.put("/search"), 405)["code"] == "method_not_allowed"
    assert error(client.get("/static/../app.py"), 404)
    assert error(client.get("/static/%2e%2e/app.py"), 404)


def test_a_failure_of_the_server_tells_nothing_of_it(retriever, questions, monkeypatch):
    def fail(*arguments):
        raise OSError(f"{retriever.index.path}: a secret")

    monkeypatch.setattr(retriever, "search_all", fail)
    with TestClient(create_app(retriever), raise_server_exceptions=False) as client:
        response = client.post("/search", json={"question": questions[0]})
    found = error(response, 500)
    assert found["message"] == "The server failed to answer this; its log says why."


def test_no_error_names_a_path_or_a_text_of_the_server(client, tiny_run, tiny_checkpoint):
    responses = [
        client.get("/passages/p99"),
        client.get("/graph/neighbors?id=p0"),
        client.post("/search", json={"question": "secret words", "k": 0}),
        client.get("/nothing"),
    ]
    for response in responses:
        assert response.status_code >= 400
        for text in (str(tiny_run), str(tiny_checkpoint), "secret", "p00", "/tmp", "gnnretrieval/", "Traceback"):
            assert text not in response.text


def test_a_request_that_waits_too_long_is_given_up(retriever, questions):
    with TestClient(create_app(retriever, ServeSettings(timeout=1e-6, batch_wait=0.5))) as client:
        found = error(client.post("/search", json={"question": questions[0]}), 504)
    assert found["code"] == "timed_out"


def test_another_name_for_the_server_is_refused(retriever):
    settings = ServeSettings(listens="loopback", allowed_hosts=("search.example.org",))
    with TestClient(create_app(retriever, settings)) as client:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "192.0.2.1", ""):
            assert error(client.get("/health", headers={"host": host}), 421)["code"] == "wrong_host"
        for host in ("localhost:8000", "LOCALHOST", "127.8.0.1:8000", "[::1]:8000", "search.example.org:443"):
            assert client.get("/health", headers={"host": host}).status_code == 200


def test_every_answer_forbids_what_the_explorer_does_not_need(client):
    for path in ("/", "/docs", "/health", "/nothing", "/static/explorer.js"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_the_pages_load_nothing_from_elsewhere(client):
    page = client.get("/").text
    for name in ("style.css", "elements.js", "asking.js", "explorer.js", "neighborhood.js"):
        assert f"static/{name}" in page
    for path in (
        "/",
        "/docs",
        "/map",
        *(f"/static/{path.name}" for path in STATIC.iterdir() if path.suffix in (".css", ".js")),
    ):
        response = client.get(path)
        assert response.status_code == 200
        text = response.text.replace("http://www.w3.org/", "")  # names of XML, not addresses
        assert "http://" not in text
        assert "https://" not in text


def test_every_address_is_in_the_openapi_description_with_its_errors(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/search",
        "/compare",
        "/answer",
        "/what-if",
        "/passages/{id}",
        "/queries/{id}",
        "/graph",
        "/graph/neighbors",
        "/map/figures",
        "/map/points",
        "/map/texts",
        "/map/named",
        "/examples",
        "/health",
        "/metrics",
        "/reload",
        "/feedback",
        "/update",
    }
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            schema = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert schema["$ref"].endswith("ErrorAnswer")


def test_an_index_without_a_graph_is_searched_and_not_compared(tiny_run, questions):
    with TestClient(create_app(Retriever.open(tiny_run / "index-dual-encoder"))) as client:
        assert client.get("/health").json()["graph"] is False
        assert len(client.post("/search", json={"question": questions[0]}).json()["hits"]) == 10
        assert error(client.post("/compare", json={"question": questions[0]}), 404)["code"] == "no_graph"
        assert error(client.get("/graph"), 404)["code"] == "no_graph"
        assert error(client.get("/graph/neighbors?id=p03"), 404)["code"] == "no_graph"
        wrong = client.post("/search", json={"question": questions[0], "system": "gnn-encoder"})
        assert error(wrong, 404)["code"] == "no_such_system"
        answer = client.get("/examples").json()
        assert (answer["gained"], answer["questions"]) == (False, [])


def test_examples_are_those_of_the_run_or_else_the_graph_s_own(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with TestClient(create_app(Retriever.open(run))) as client:
        own = client.get("/examples").json()
    assert own["gained"] is False
    assert len(own["questions"]) == 6
    example = {"question": "who?", "passage": "p03", "before": None, "after": 1}
    (run / "examples.json").write_text(json.dumps([example]), encoding="utf-8")
    with TestClient(create_app(Retriever.open(run))) as client:
        answer = client.get("/examples").json()
        assert (answer["gained"], answer["questions"]) == (True, [example])
    (run / "examples.json").write_text('[{"no": "question"}]', encoding="utf-8")
    with TestClient(create_app(Retriever.open(run))) as client:
        assert client.get("/examples").json() == own
