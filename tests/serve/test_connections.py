"""A server of few connections and short deadlines, and clients that are slow, silent or many."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.serve import listening
from gnnretrieval.serve.connections import Limits, protocol_with
from gnnretrieval.serve.listening import Listener, bound, connections_that_fit, is_loopback_address

HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
HELD = b"GET /held HTTP/1.1\r\nhost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def application(scope, receive, send):
    """Reads the body, and answers with as much; ``/held`` answers when it is let go, ``/large`` with 16 MiB."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    while scope["path"] == "/held" and not application.let_go:
        await asyncio.sleep(0.01)
    body = bytes(2**24) if scope["path"] == "/large" else body
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def served(connections=4, head=0.4, request=0.8, answer=0.4):
    application.let_go = False
    limits = Limits(connections, head, request, answer)
    with bound("127.0.0.1", 0) as listener:
        protocol = protocol_with(limits, lambda: listener.fileno() >= 0)
        how = {"http": protocol, "ws": "none", "lifespan": "off", "log_level": "warning", "backlog": 64}
        server = uvicorn.Server(uvicorn.Config(application, **how, timeout_keep_alive=1, timeout_graceful_shutdown=1))
        server.address = listener.getsockname()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        listener.listen()
        yield server
        application.let_go = True
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def connected(server, *sent):
    with socket.create_connection(server.address, timeout=5) as one:
        for part in sent:
            one.sendall(part)
        yield one


def rest(one):
    """What comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(65536):
            found += part
    return found


def answer(one):
    return one.recv(65536).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("sent", "says"), [(b"", b""), (HEAD[:20], b"408 Request Timeout"), (HEAD + b"half", b"408 Request Timeout")]
)
def test_a_request_that_does_not_arrive_in_time_is_refused(sent, says):
    with served() as server, connected(server, sent) as one:
        begun = time.monotonic()
        assert says in rest(one)
        assert time.monotonic() - begun < 3


def test_bytes_one_by_one_do_not_put_the_deadline_off():
    with served() as server, connected(server, HEAD[:20]) as one:
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begun < 5:
                one.sendall(b"a")
                time.sleep(0.05)
        assert time.monotonic() - begun < 3


def test_a_slow_answer_and_further_requests_on_a_connection_are_no_delay():
    with served(head=0.3, request=0.3) as server, connected(server, HELD) as one:
        time.sleep(0.8)
        application.let_go = True
        assert answer(one) == b"HTTP/1.1 200 OK"
        for _ in range(2):
            time.sleep(0.4)  # idle: the keep-alive's time, not the head's
            one.sendall(REQUEST)
            assert answer(one) == b"HTTP/1.1 200 OK"
        one.sendall(REQUEST[:10])
        assert b"408" in rest(one)


def test_an_answer_that_is_not_taken_is_given_up():
    with served(answer=0.3) as server, connected(server, LARGE):
        for _ in range(100):
            time.sleep(0.05)
            if not server.server_state.connections:
                break
        assert not server.server_state.connections


def test_one_more_connection_takes_the_place_of_the_one_that_was_silent_longest():
    with served(connections=3, head=30) as server, contextlib.ExitStack() as stack:
        first, *others = [stack.enter_context(connected(server, HEAD[:20])) for _ in range(3)]
        while len(server.server_state.connections) < 3:
            time.sleep(0.01)
        with connected(server, REQUEST) as one:
            assert answer(one) == b"HTTP/1.1 200 OK"
            assert rest(first) == b""
            for other in others:
                other.sendall(HEAD[20:] + bytes(10))
                assert answer(other) == b"HTTP/1.1 200 OK"


def test_where_all_connections_wait_for_answers_one_more_is_refused_at_once():
    with served(connections=2) as server, connected(server, HELD) as one, connected(server, HELD):
        time.sleep(0.3)
        with connected(server) as late:
            assert b"503 Service Unavailable" in rest(late)
        application.let_go = True
        assert answer(one) == b"HTTP/1.1 200 OK"


def test_the_end_does_not_wait_for_requests_that_have_not_arrived():
    with served(head=30, request=30) as server, connected(server, HEAD + b"half"), connected(server):
        time.sleep(0.2)
        begun = time.monotonic()
        server.should_exit = True
        while server.server_state.connections:
            assert time.monotonic() - begun < 0.8
            time.sleep(0.01)


def test_a_connection_for_which_no_descriptor_is_left_is_closed_at_once():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Listener(socket.AF_INET, socket.SOCK_STREAM) as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = stack.enter_context(socket.socket())
        full = max(int(entry.name) for entry in Path("/dev/fd").iterdir()) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (full, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            client.connect(listener.getsockname())
            with pytest.raises(ConnectionAbortedError):
                listener.accept()
            client.settimeout(5)
            assert rest(client) == b""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert listener.fileno() >= 0


def test_other_errors_of_accept_come_through():
    with Listener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        with pytest.raises(OSError) as found:  # noqa: PT011 (its number is looked at)
            listener.accept()
        assert found.value.errno in (errno.EAGAIN, errno.EINVAL)


def test_descriptors_are_left_for_files(monkeypatch):
    monkeypatch.setattr(listening, "_open_files", lambda: 20)
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: None)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1024))
    assert 500 < connections_that_fit(1000) < 1000
    assert connections_that_fit(100) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 64))
    with pytest.raises(GnnRetrievalError, match="only 64 files may be open"):
        connections_that_fit(1000)
    raised = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: raised.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, resource.RLIM_INFINITY))
    assert connections_that_fit(1000) == 1000
    assert raised == [(65536, resource.RLIM_INFINITY)]


def test_every_address_of_this_machine_alone_is_known():
    for address in ("127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1"):
        assert is_loopback_address(address)
    for address in ("0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "localhost", ""):
        assert not is_loopback_address(address)
