"""``gnnretrieval serve`` as a process: its address, its end, and what it refuses before it loads anything."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from gnnretrieval.index.updating import remove_passages
from gnnretrieval.serve.running import stopped_by_signals


class Server:
    """A server process over an index, on any free port."""

    def __init__(self, path, *options):
        command = [sys.executable, "-W", "ignore", "-m", "gnnretrieval", "serve", str(path), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if "(Ctrl-C stops it)" in line:
                self.address = next(word for word in line.split() if word.startswith("http://"))
                return
        raise AssertionError("".join(self.said))

    def get(self, path, **headers):
        with urllib.request.urlopen(
            urllib.request.Request(self.address + path, headers=headers), timeout=60
        ) as response:
            return json.load(response)

    def ask(self, question, path="search"):
        k = {"k": 2} if path == "search" else {}
        body = json.dumps({"question": question, **k}).encode()
        request = urllib.request.Request(f"{self.address}/{path}", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)


def test_a_signal_ends_it_when_the_questions_in_flight_are_answered(made):
    server = Server(made.index)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(server.ask("words " * 1500))) for _ in range(8)]
    try:
        assert server.address.startswith("http://127.0.0.1:")
        for thread in threads:
            thread.start()
        answers.append(server.ask("in flight with others"))
    finally:
        server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    _, rest = server.process.communicate(timeout=60)
    assert server.process.returncode == 0
    assert rest.splitlines()[-1] == "stopped"
    assert "Traceback" not in rest
    assert [len(answer["hits"]) for answer in answers] == [2] * 9


def test_sighup_loads_the_index_again_and_sigterm_ends_it_whatever_is_open(made, tmp_path):
    index, token = shutil.copytree(made.baseline_index, tmp_path / "index"), tmp_path / "token"
    token.write_text("0123456789abcdef\n", encoding="utf-8")
    token.chmod(0o600)
    bearer = {"authorization": "Bearer 0123456789abcdef"}
    server = Server(index, "--host", "127.0.0.2", "--token-file", str(token))
    try:
        assert server.address.startswith("http://127.0.0.2:")
        assert server.get("/health") == {"status": "ready"}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.ask("no token")
        before = server.get("/health", **bearer)["version"]
        remove_passages(index, ["p03"])
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while server.get("/health", **bearer)["version"] == before:
            assert time.monotonic() < end
            time.sleep(0.05)
        host, port = server.address.removeprefix("http://").split(":")
        half = [socket.create_connection((host, int(port))) for _ in range(5)]
        for one in half:
            one.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf")
    finally:
        server.process.send_signal(signal.SIGTERM)
    _, rest = server.process.communicate(timeout=5)
    assert (server.process.returncode, rest) == (0, "stopped\n")


def test_beyond_a_loopback_address_a_token_is_wanted(made, refuses, tmp_path):
    says = ("--host 0.0.0.0: others can reach this address", "--token-file FILE", "--no-auth")
    outcome = refuses("serve", made.index, "--host", "0.0.0.0", "--port", 0, says=says)
    assert "loading" not in outcome.err
    token = tmp_path / "token"
    token.write_text("0123456789abcdef", encoding="utf-8")
    token.chmod(0o644)
    refuses("serve", made.index, "--token-file", token, says=("every user of this machine can read", "chmod 600"))
    refuses("serve", made.index, "--token-file", token, "--no-auth", says=("--no-auth lets everybody ask",))


def test_feedback_wants_a_token_and_a_file_that_can_be_written(made, refuses, tmp_path):
    outcome = refuses("serve", made.index, "--feedback", tmp_path / "a.jsonl", says=("--feedback", "--token-file FILE"))
    assert "loading" not in outcome.err
    assert not (tmp_path / "a.jsonl").exists()
    token = tmp_path / "token"
    token.write_text("0123456789abcdef", encoding="utf-8")
    token.chmod(0o600)
    options = ("--token-file", token, "--feedback", tmp_path / "nothing" / "a.jsonl")
    outcome = refuses("serve", made.index, *options, says=("a.jsonl: feedback cannot be written here",))
    assert "loading" not in outcome.err


def test_a_reader_that_cannot_read_is_refused_before_the_index_is_loaded(
    made, refuses, tiny_checkpoint, tiny_reader, tmp_path
):
    options = ("serve", made.index, "--port", 0)
    refuses(*options, "--passages", 3, says=("--passages goes with --reader",))
    for reader, says in (
        (made.features, "this directory holds features, not a reader"),
        (tmp_path / "nothing", "nothing"),
        (tiny_checkpoint, "this is no reader's checkpoint"),
    ):
        assert f"loading {made.index}" not in refuses(*options, "--reader", reader, says=(says,)).err
    damaged = shutil.copytree(tiny_reader, tmp_path / "damaged")
    weights = load_file(damaged / "model.safetensors")
    save_file({name: torch.full_like(one, torch.nan) for name, one in weights.items()}, damaged / "model.safetensors")
    outcome = refuses(*options, "--reader", damaged, says=("its logits are not finite: the weights are damaged",))
    assert f"loading {made.index}" not in outcome.err
    refuses(*options, "--reader", tiny_reader, "--passages", 0, says=("passages: input should be greater than",))


def test_the_reader_that_the_command_names_answers(made, tiny_reader):
    server = Server(made.index, "--reader", str(tiny_reader), "--max-tokens", "48", "--passages", "2")
    try:
        answer = server.ask("in flight with others", "answer")
    finally:
        server.process.send_signal(signal.SIGTERM)
    _, rest = server.process.communicate(timeout=60)
    assert (server.process.returncode, rest) == (0, "stopped\n")
    assert answer["passages"] == 2
    assert answer["text"][answer["start"] : answer["end"]] == answer["answer"] != ""


def test_thumbs_go_to_the_file_that_the_command_names(made, tmp_path):
    token, log = tmp_path / "token", tmp_path / "thumbs.jsonl"
    token.write_text("0123456789abcdef", encoding="utf-8")
    token.chmod(0o600)
    server = Server(made.index, "--token-file", str(token), "--feedback", str(log))
    try:
        given = {"question": "zu", "shown": ["p03"], "passage": "p03", "thumb": "up", "session": "session-1"}
        headers = {"authorization": "Bearer 0123456789abcdef", "content-type": "application/json"}
        request = urllib.request.Request(f"{server.address}/feedback", json.dumps(given).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.status == 200
    finally:
        server.process.send_signal(signal.SIGTERM)
    _, rest = server.process.communicate(timeout=60)
    assert (server.process.returncode, rest) == (0, "stopped\n")
    assert json.loads(log.read_text())["thumbs"] == {"p03": "up"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_server_listens_for_it_stops_it_too(number):
    server, before = SimpleNamespace(should_exit=False), signal.getsignal(number)
    with stopped_by_signals(server):
        signal.raise_signal(number)
    assert server.should_exit
    assert signal.getsignal(number) is before


def test_a_port_in_use_is_one_sentence_before_anything_is_loaded(made, refuses):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = refuses("serve", made.index, "--port", port, says=(f"port {port} of 127.0.0.1 is in use", "--port"))
    assert "loading" not in outcome.err


def test_an_address_that_is_not_this_machine_s_is_one_sentence(made, refuses):
    refuses("serve", made.index, "--host", "192.0.2.1", says=("192.0.2.1: this address cannot be had", "--host"))
    refuses("serve", made.index, "--host", "no such host", says=("no such host: this address cannot be had",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rate", "nan"), "rate: input should be a finite number"),
        (("--watch", "inf"), "watch: input should be a finite number"),
        (("--explore", "nan"), "explore: input should be a finite number"),
    ],
)
def test_a_number_that_is_not_finite_is_one_sentence_before_anything_is_loaded(made, refuses, options, says):
    outcome = refuses("serve", made.index, "--port", "0", *options, says=(says,))
    assert "loading" not in outcome.err


def test_a_name_that_is_none_is_one_sentence_before_anything_is_loaded(made, refuses):
    name = "https://search.example.org"
    outcome = refuses("serve", made.index, "--port", "0", "--allow-host", name, says=(f"--allow-host {name}",))
    assert "loading" not in outcome.err


def test_a_place_without_an_index_is_one_sentence(refuses, tmp_path, monkeypatch):
    refuses("serve", tmp_path / "nothing", "--port", "0", says=("it should hold an index",))
    monkeypatch.chdir(tmp_path)
    refuses("serve", "--port", "0", says=("nothing to serve yet", "gnnretrieval quickstart"))


def test_graph_view_writes_a_page(made, succeeds, refuses, tmp_path):
    page = tmp_path / "p03.html"
    outcome = succeeds("graph", "view", made.graph, "p03", "--model", made.model, "--html", page)
    assert f"{page}: the page" in outcome.err
    assert "context_scale" in page.read_text(encoding="utf-8")
    succeeds("graph", "view", made.graph, "train-03", "--query", "--html", tmp_path / "q.html")
    refuses("graph", "view", made.graph, "p99", "--html", tmp_path / "no.html", says=("no passage 'p99'",))
    refuses("graph", "view", made.graph, "p03", "--html", tmp_path, says=("this is a directory",))
    assert not (tmp_path / "no.html").exists()
