import json
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from endpoints import embeddings, free_port, scripted_server, vector_of

from gnnretrieval.encoders import endpoint as module
from gnnretrieval.encoders.endpoint import EndpointEncoder, EndpointError, allowed, cost_in_words
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError

pytest.importorskip("openai", reason="no openai here: pip install '.[endpoint]'")


def settings_for(address, checkpoint="a-model", **api):
    return EncoderSettings.parse({"checkpoint": checkpoint, "api": {"endpoint": address, **api}})


def unit(vectors):
    rows = np.array(vectors, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    monkeypatch.setattr(module, "_RETRIES", 2)
    monkeypatch.setattr(module, "_FEW_WAITS", (0.01, 0.01))


def test_vectors_come_in_the_order_of_the_texts_from_several_requests():
    texts = [f"text {number}" for number in range(10)]
    with scripted_server(lambda request, headers: embeddings(request)) as (address, seen):
        encoder = EndpointEncoder(settings_for(address, batch_texts=3))
        found = encoder.encode(texts, "passage")
    np.testing.assert_allclose(found, unit([vector_of(text) for text in texts]), rtol=1e-6)
    assert sorted(len(request["input"]) for request in seen) == [1, 3, 3, 3]
    assert encoder.tokens == 10
    assert encoder.encode([], "query").shape == (0, 8)


def test_both_sides_are_asked_in_their_way():
    given = {"query_checkpoint": "q-model", "query_prompt": "query: ", "passage_prompt": "passage: "}
    with scripted_server(lambda request, headers: embeddings(request)) as (address, seen):
        api = {"endpoint": address, "dimensions": 5, "input_types": ("query", "document")}
        encoder = EndpointEncoder(EncoderSettings.parse({"checkpoint": "p-model", **given, "api": api}))
        assert encoder.encode(["a"], "query").shape == (1, 5)
        encoder.encode(["b"], "passage")
    asked = [(one["model"], one["input"], one["input_type"], one["dimensions"]) for one in seen]
    assert asked == [("q-model", ["query: a"], "query", 5), ("p-model", ["passage: b"], "document", 5)]


def test_a_rate_limit_is_waited_out():
    refused = []

    def answer(request, headers):
        if len(refused) < 2:
            refused.append(1)
            return 429, {"retry-after-ms": "10"}, b'{"error": {"message": "slow down"}}'
        return embeddings(request)

    for side in ("query", "passage"):
        refused.clear()
        with scripted_server(answer) as (address, seen):
            EndpointEncoder(settings_for(address)).encode(["a"], side)
        assert len(seen) == 3


@pytest.mark.parametrize("asked", ["30", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_question_does_not_wait_as_long_as_a_busy_endpoint_asks(asked):
    refusal = 429, {"retry-after": asked}, b'{"error": {"message": "slow down"}}'
    begun = time.monotonic()
    with (
        scripted_server(lambda request, headers: refusal) as (address, seen),
        pytest.raises(EndpointError, match="429 slow down"),
    ):
        EndpointEncoder(settings_for(address)).encode(["a"], "query")
    assert len(seen) == 1
    assert time.monotonic() - begun < 10


def test_another_width_than_before_is_an_error_of_the_endpoint():
    width = [8]
    with scripted_server(lambda request, headers: embeddings({**request, "dimensions": width[0]})) as (address, _):
        encoder = EndpointEncoder(settings_for(address))
        encoder.encode(["a"], "query")
        width[0] = 4
        with pytest.raises(EndpointError, match="vectors of 8 numbers before, and of 4 now"):
            encoder.encode(["a"], "query")


def test_a_question_is_given_up_soon_and_passages_are_waited_for(monkeypatch):
    monkeypatch.setattr(module, "_FEW_TIMEOUT", 0.1)

    def answer(request, headers):
        time.sleep(0.4)
        return embeddings(request)

    with scripted_server(answer) as (address, _):
        encoder = EndpointEncoder(settings_for(address))
        assert encoder.encode(["a"], "passage").shape == (1, 8)
        assert encoder.encode(["a"] * 17, "query").shape == (17, 8)
        with pytest.raises(EndpointError, match=r"cannot be reached .*timed out"):
            encoder.encode(["a"], "query")


def test_requests_keep_to_the_number_a_minute(monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(module.time, "sleep", waits.append)
    encoder = EndpointEncoder(settings_for("http://localhost:1/v1", requests_per_minute=30))
    for _ in range(3):
        encoder._wait_for_turn()
    assert waits == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda r: (400, {}, b'{"error": {"message": "no such model"}}'), r"refuses 'a-model': 400 no such model\.$"),
        (lambda r: (500, {"retry-after-ms": "1"}, b"oh"), r"refuses 'a-model': 500"),
        (lambda r: embeddings(r, data=[]), r"did not give one vector for each of 1 texts|is no embeddings API"),
        (lambda r: embeddings(r, data=[{"index": 1, "embedding": [1.0]}]), r"did not give one vector for each"),
        (lambda r: embeddings(r, data=[{"index": 0, "embedding": [0.0]}]), r"not finite, or all zeros"),
        (lambda r: embeddings(r, data=[{"index": 0, "embedding": ["x"]}]), r"did not give one vector for each"),
        (lambda r: (200, {"content-type": "text/html"}, b"<html>"), r"did not give one vector|is no embeddings API"),
        (lambda r: (200, {}, b"not json"), r"did not give one vector|is no embeddings API"),
    ],
)
def test_what_goes_wrong_is_a_sentence(answer, message):
    with scripted_server(lambda request, headers: answer(request)) as (address, _):
        encoder = EndpointEncoder(settings_for(address))
        with pytest.raises(EndpointError, match=message):
            encoder.encode(["a"], "query")


def test_dimensions_that_the_model_ignores_are_noticed():
    with scripted_server(lambda request, headers: embeddings({**request, "dimensions": 8})) as (address, _):
        encoder = EndpointEncoder(settings_for(address, dimensions=5))
        with pytest.raises(EndpointError, match=r"gave 8 numbers where 5 were asked for"):
            encoder.encode(["a"], "query")


def test_nobody_at_the_address_is_a_sentence():
    address = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(EndpointError, match=rf"{address} cannot be reached .*Is it running\?"):
        EndpointEncoder(settings_for(address)).encode(["a"], "query")


def test_the_key_is_sent_and_never_said(monkeypatch):
    got = []
    monkeypatch.setenv("MY_KEY", "sk-very-secret")

    def answer(request, headers):
        got.append(headers["authorization"])
        return 401, {}, b'{"error": {"message": "Incorrect API key provided: sk-very-secret"}}'

    with scripted_server(answer) as (address, _):
        settings = settings_for(address, key_variable="MY_KEY")
        with pytest.raises(EndpointError, match=r"refuses the key in MY_KEY \(which is set\)") as raised:
            EndpointEncoder(settings).encode(["a"], "query")
    assert got == ["Bearer sk-very-secret"]
    assert "secret" not in f"{raised.value}{settings.model_dump_json()}{raised.value.__cause__}"


@pytest.mark.parametrize(("named", "sent"), [(None, "the-key"), ("MY_KEY", "mine")])
def test_an_artifact_does_not_choose_the_variable_of_the_key(monkeypatch, named, sent):
    got = []
    for variable, value in (("OPENAI_API_KEY", "the-key"), ("DATABASE_PASSWORD", "hunter2"), ("MY_KEY", "mine")):
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("GNNRETRIEVAL_KEY_VARIABLE", raising=False)
    if named is not None:
        monkeypatch.setenv("GNNRETRIEVAL_KEY_VARIABLE", named)

    def answer(request, headers):
        got.append(headers["authorization"])
        return embeddings(request)

    with scripted_server(answer) as (address, _):
        for endpoint in (None, address):
            settings = allowed(settings_for(address, key_variable="DATABASE_PASSWORD"), endpoint)
            EndpointEncoder(settings).encode(["a"], "query")
    assert got == [f"Bearer {sent}"] * 2


@pytest.mark.parametrize("address", ["https://me:sk-secret@host/v1", "https://host/v1?key=sk-secret"])
def test_a_key_in_the_address_is_refused_and_not_repeated(address):
    with pytest.raises(InputError, match="would be written to disk") as raised:
        settings_for(address)
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"api": {"endpoint": "https://host/v1"}}, "name one by checkpoint"),
        ({"checkpoint": "m", "api": {"endpoint": "ftp://host"}}, "give an address"),
        ({"checkpoint": "m", "api": {"endpoint": "https://h/v1", "input_types": ["query"]}}, "give two"),
    ],
)
def test_settings_that_name_no_endpoint_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        EncoderSettings.parse(values)


def test_an_encoder_that_is_no_endpoint_is_written_as_before_there_were_any():
    plain = EncoderSettings(checkpoint="a-model")
    assert "api" not in plain.model_dump()
    assert EncoderSettings.parse(plain.model_dump()) == plain
    asked = settings_for("http://host/v1")
    assert EncoderSettings.parse(json.loads(asked.model_dump_json())) == asked


def test_the_fingerprint_is_of_the_model_and_how_it_is_asked_not_of_the_address():
    def print_of(address="http://a/v1", checkpoint="m", **api):
        return EndpointEncoder(settings_for(address, checkpoint, **api)).fingerprint

    assert print_of() == print_of("http://b/v1") == print_of(batch_texts=7)
    assert len({json.dumps(one) for one in (print_of(), print_of(checkpoint="n"), print_of(dimensions=5))}) == 3


def test_an_artifact_s_address_is_only_used_where_it_is_no_stranger_s(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    stranger = settings_for("https://stranger.example/v1")
    with pytest.raises(GnnRetrievalError, match=r"would be sent there .* --endpoint https://stranger\.example/v1"):
        allowed(stranger, None)
    assert allowed(stranger, "https://stranger.example/v1") == stranger
    assert allowed(stranger, "https://mine.example/v1/").api.endpoint == "https://mine.example/v1"
    for address in ("https://api.openai.com/v1", "http://localhost:8000/v1", "http://127.0.0.1:8000/v1"):
        assert allowed(settings_for(address), None).api.endpoint == address
    monkeypatch.setenv("OPENAI_BASE_URL", "https://stranger.example/v1/")
    assert allowed(stranger, None) == stranger


def test_one_failed_request_ends_the_others():
    started = []

    def answer(request, headers):
        started.append(request)
        return 400, {}, b'{"error": {"message": "no"}}'

    with scripted_server(answer) as (address, _), pytest.raises(EndpointError):
        EndpointEncoder(settings_for(address, batch_texts=1, concurrency=1)).encode(["a"] * 50, "query")
    assert len(started) == 1


def test_ctrl_c_does_not_wait_for_requests_under_way(tmp_path):
    answered = threading.Event()

    def answer(request, headers):
        answered.wait(30)
        return embeddings(request)

    with scripted_server(answer) as (address, seen):
        code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from gnnretrieval.encoders.endpoint import EndpointEncoder
from gnnretrieval.encoders.settings import EncoderSettings
api = {{"endpoint": {address!r}, "batch_texts": 1}}
EndpointEncoder(EncoderSettings.parse({{"checkpoint": "m", "api": api}})).encode(["a"] * 10, "query")
"""
        with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as asking:
            while len(seen) < 4:
                time.sleep(0.01)
            begun = time.monotonic()
            asking.send_signal(signal.SIGINT)
            _, said = asking.communicate(timeout=20)
            assert time.monotonic() - begun < 5
        answered.set()
    assert "KeyboardInterrupt" in said


def test_the_cost_is_said_by_the_price():
    assert cost_in_words(1_500_000, None) == "1,500,000 tokens"
    assert cost_in_words(1_500_000, 0.02) == "1,500,000 tokens, which cost 0.0300"


def test_requests_may_end_between_two_looks_at_their_threads(monkeypatch):
    is_alive, looks = threading.Thread.is_alive, []

    def ends_before_the_second_look(thread):
        looks.append(thread)
        if len(looks) > 1:
            thread.join()
        return is_alive(thread)

    monkeypatch.setattr(threading.Thread, "is_alive", ends_before_the_second_look)
    (vectors,) = module._in_threads(lambda batch: time.sleep(0.05) or np.ones((len(batch), 2)), [["a"]], 1)
    assert vectors.shape == (1, 2)
