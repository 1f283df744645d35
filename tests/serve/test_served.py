"""One version at a time: what is deleted or replaced beside a server changes no answer, and a reload changes all."""

import gc
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from gnnretrieval.index.faiss_index import Index, open_index
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.serve.served import CurrentVersion, open_version
from gnnretrieval.serve.worker import Busy

TOKEN = "0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture(scope="module")
def question(tiny_dataset):
    return next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text


@pytest.fixture(params=[0, 2**30], ids=["mapped", "in memory"])
def in_memory(request):
    return request.param


def opened(run, in_memory=0, older=None, **how):
    return open_version(lambda: Retriever.open(run, older=older), in_memory, **how)


def client_of(run, **settings):
    def load(before):
        return opened(run, older=before.retriever, is_patient=True)

    return TestClient(create_app(opened(run), ServeSettings(token=TOKEN, **settings), load=load), headers=BEARER)


def without_time(answer):
    return {name: value for name, value in answer.items() if name != "milliseconds"}


def all_answers(client, question):
    """What every address of the index answers."""
    asked = [
        client.post("/search", json={"question": question, "k": 5}),
        client.post("/search", json={"question": question, "k": 5, "system": "dual-encoder"}),
        client.post("/compare", json={"question": question, "k": 5}),
        *(
            client.get(path)
            for path in ("/passages/p03", "/queries/train-03", "/graph", "/examples", "/graph/neighbors?id=p03")
        ),
        client.get("/graph/neighbors?id=train-03&kind=query"),
    ]
    assert [one.status_code for one in asked] == [200] * len(asked)
    assert {one.headers["index-version"] for one in asked} == {asked[0].json()["version"]}
    return [without_time(one.json()) for one in asked]


def test_every_answer_is_as_before_when_all_of_it_is_deleted(run, in_memory, question):
    with TestClient(create_app(Retriever.open(run))) as client:
        expected = all_answers(client, question)
    retriever = opened(run, in_memory)
    retriever.warm_up(1)
    with TestClient(create_app(retriever)) as client:
        client.get("/examples")
        shutil.rmtree(run)
        assert all_answers(client, question) == expected


def test_small_files_that_are_cut_in_place_change_no_answer(run, question):
    with TestClient(create_app(opened(run, 2**30))) as client:
        expected = all_answers(client, question)
        for path in run.rglob("*"):
            if path.suffix in (".npy", ".faiss"):
                own = path.read_bytes()
                path.unlink()  # the copy may share its file with others
                path.write_bytes(own)
        for path in (*run.rglob("*.npy"), *run.rglob("*.faiss")):
            path.write_bytes(b"")
        assert all_answers(client, question) == expected


def test_a_reload_serves_the_new_version_and_names_it(run, question):
    with client_of(run) as client:
        before = all_answers(client, question)
        remove_passages(run / "index", [before[0]["hits"][0]["id"]])
        assert all_answers(client, question) == before
        reload = client.post("/reload").json()
        after = all_answers(client, question)
        health, metrics = client.get("/health").json(), client.get("/metrics").text
    version = open_index(run / "index").hash[:12]
    assert (reload["before"], reload["version"], reload["failed"]) == (before[0]["version"], version, False)
    assert {answer["version"] for answer in after} == {version} != {before[0]["version"]}
    assert before[0]["hits"][0]["id"] not in [hit["id"] for hit in after[0]["hits"]]
    assert (health["version"], health["reload"]) == (version, reload)
    assert f'gnnretrieval_index_version{{version="{version}"}} 1.0' in metrics
    assert metrics.count("gnnretrieval_index_version{") == 1
    assert 'gnnretrieval_reloads_total{outcome="done"} 1.0' in metrics


def cut_faiss(run):
    file = run / "index" / "index.faiss"
    own = file.read_bytes()
    file.unlink()
    file.write_bytes(own[: len(own) // 2])


def cut_texts(run):
    file = run / "index" / "texts.sqlite"
    own = file.read_bytes()
    file.unlink()
    file.write_bytes(own[: len(own) // 2])


def no_index(run):
    shutil.rmtree(run / "index")


def no_json(run):
    (run / "index" / "meta.json").unlink()
    (run / "index" / "meta.json").write_text('{"kind": ', encoding="utf-8")


def another_graph(run):
    meta = json.loads((run / "graph" / "meta.json").read_text(encoding="utf-8"))
    (run / "graph" / "meta.json").unlink()
    (run / "graph" / "meta.json").write_text(json.dumps({**meta, "hash": "other"}), encoding="utf-8")


def no_weights(run):
    file = next((run / "model").glob("*.safetensors"))
    file.unlink()
    file.write_bytes(b"no weights")


@pytest.mark.parametrize("damage", [cut_faiss, cut_texts, no_index, no_json, another_graph, no_weights])
def test_a_reload_that_fails_keeps_the_version_before_and_says_so(run, question, damage, caplog):
    with client_of(run) as client:
        before = all_answers(client, question)
        damage(run)
        refused = client.post("/reload")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_reloaded")
        assert str(run) not in refused.text
        assert all_answers(client, question) == before
        health, metrics = client.get("/health").json(), client.get("/metrics").text
    assert (health["status"], health["reload"]["failed"], health["version"]) == ("ready", True, before[0]["version"])
    assert "gnnretrieval_last_reload_failed 1.0" in metrics
    assert 'gnnretrieval_reloads_total{outcome="failed"} 1.0' in metrics
    assert "was not loaded again" in caplog.text
    assert str(run) in caplog.text


def test_who_watches_reloads_by_itself(run, question):
    with client_of(run, watch=0.05) as client:
        before = all_answers(client, question)[0]
        remove_passages(run / "index", [before["hits"][0]["id"]])
        version, end = open_index(run / "index").hash[:12], time.monotonic() + 20
        while client.get("/health").json()["version"] != version:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert all_answers(client, question)[0]["version"] == version


def test_who_watches_sees_what_was_promoted_while_it_started(run, question):
    def load(before):
        return opened(run, older=before.retriever, is_patient=True)

    first = opened(run)
    best = first.search(question, 1)[0].id
    remove_passages(run / "index", [best])
    settings = ServeSettings(token=TOKEN, watch=0.05)
    with TestClient(create_app(first, settings, load=load), headers=BEARER) as client:
        version, end = open_index(run / "index").hash[:12], time.monotonic() + 20
        while client.get("/health").json()["version"] != version:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_who_watches_goes_on_when_too_many_reloads_wait(run, question, monkeypatch):
    real, refused = CurrentVersion.reload, []

    async def reload(current):
        if len(refused) < 2:
            refused.append(1)
            raise Busy
        return await real(current)

    monkeypatch.setattr(CurrentVersion, "reload", reload)
    with client_of(run, watch=0.05) as client:
        remove_passages(run / "index", [all_answers(client, question)[0]["hits"][0]["id"]])
        version, end = open_index(run / "index").hash[:12], time.monotonic() + 20
        while client.get("/health").json()["version"] != version:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert len(refused) == 2


def test_an_index_that_changes_while_a_retriever_opens_it_is_opened_again(run, question, monkeypatch):
    best, real, opened_at = Retriever.open(run).search(question, 1)[0].id, Index.keep_open, []

    def keep_open(index, in_memory=False):
        opened_at.append(index.hash)
        if len(opened_at) == 1:
            remove_passages(run / "index", [best])
        real(index, in_memory)

    monkeypatch.setattr(Index, "keep_open", keep_open)
    retriever = Retriever.open(run)
    assert len(set(opened_at)) == len(opened_at) == 2
    hits = retriever.search(question, 100)
    assert len(hits) == retriever.num_passages
    assert best not in {hit.id for hit in hits}


def test_requests_during_reloads_are_each_of_one_version(run, question):
    """What an answer says is what the version it names says."""
    with client_of(run) as client, ThreadPoolExecutor(3) as pool:
        expected = {}
        ends = threading.Event()

        def ask():
            found = []
            while not ends.is_set():
                found.append(client.post("/search", json={"question": question, "k": 40}))
            return found

        asking = [pool.submit(ask) for _ in range(3)]
        try:
            for _ in range(4):
                version = client.get("/health").json()["version"]
                expected[version] = {
                    row["id"] for row in client.post("/search", json={"question": question, "k": 40}).json()["hits"]
                }
                remove_passages(run / "index", [min(expected[version])])
                assert client.post("/reload").status_code == 200
        finally:
            ends.set()
        answers = [one for job in asking for one in job.result()]
    assert {one.status_code for one in answers} == {200}
    seen = set()
    for one in answers:
        answer = one.json()
        seen.add(answer["version"])
        if answer["version"] in expected:
            assert {hit["id"] for hit in answer["hits"]} == expected[answer["version"]]
        assert one.headers["index-version"] == answer["version"]
    assert len(seen) > 1


def test_the_encoder_is_kept_and_the_files_of_the_version_before_are_closed(run, question):
    import weakref

    app_retriever = opened(run)
    encoder, gone = app_retriever.encoder, weakref.ref(app_retriever)

    def load(before):
        return opened(run, older=before.retriever)

    with TestClient(create_app(app_retriever, ServeSettings(token=TOKEN), load=load), headers=BEARER) as client:
        del app_retriever
        all_answers(client, question)
        assert client.post("/reload").status_code == 200
        all_answers(client, question)
        for _ in range(100):
            if gone() is None:
                break
            time.sleep(0.02)
        assert gone() is None
        newest = client.app.state.serving.versions.current.retriever
        assert newest.encoder is encoder


def test_closing_closes_every_file_of_texts_at_once(run, question):
    """Without waiting for Python's collection of cycles, which a connection of SQLite is in."""
    first = Retriever.open(run).search(question, 1)[0].id
    remove_passages(run / "index", [first])
    gc.collect()
    gc.disable()
    try:
        before = len(open_texts())
        retriever = opened(run)
        assert len(open_texts()) > before
        retriever.close()
        assert len(open_texts()) == before
    finally:
        gc.enable()


def open_texts() -> list[str]:
    """Files of texts that this process has open."""
    targets = []
    for one in Path("/dev/fd").iterdir():
        with suppress(OSError):
            targets.append(str(one.readlink()))
    return [target for target in targets if target.endswith("texts.sqlite")]


def test_without_a_token_nobody_reloads_by_a_request(run):
    with TestClient(create_app(opened(run), load=lambda before: opened(run))) as client:
        refused = client.post("/reload")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_reload")


def test_an_index_over_a_graph_that_changed_since_is_refused_in_a_sentence(run):
    another_graph(run)
    with pytest.raises(ArtifactError, match=r"embeddings: made of another version of .*graph.* \(--changed\)"):
        opened(run)


def test_an_index_that_changes_while_it_is_opened_is_opened_again(run, monkeypatch):
    monkeypatch.setattr("gnnretrieval.serve.served._PAUSE", 0)
    before, tried = open_index(run / "index").hash, []

    def open_():
        retriever = Retriever.open(run)
        if not tried:
            remove_passages(run / "index", ["p03"])
        tried.append(retriever)
        return retriever

    assert open_version(open_, 0).index.hash != before
    assert len(tried) == 2
    monkeypatch.setattr(Retriever, "is_current", lambda self: False)
    with pytest.raises(GnnRetrievalError, match="changes while it is opened"):
        open_version(open_, 0)
