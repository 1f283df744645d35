"""Run the server: take the port, load, answer, and stop cleanly."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.progress import say

if TYPE_CHECKING:
    import uvicorn

    from gnnretrieval.index.hybrid import RankingSettings
    from gnnretrieval.index.retriever import Retriever

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_STOPS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 2048  # connections that may wait to be taken
_GRACE = 30  # seconds that requests in flight may take when the server stops


def serve(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "cpu",
    endpoint: str | None = None,
    ranking: RankingSettings | None = None,
) -> None:
    """Serve an index, or the one of a run, until SIGINT or SIGTERM; requests in flight are answered before it ends.

    Args:
        path: As :meth:`gnnretrieval.index.retriever.Retriever.open`.
        host: Where to listen. On a loopback address only requests that call it by such a name are answered.
        port: 0: any that is free.
        device: Where questions are encoded.
        endpoint: As :meth:`~gnnretrieval.index.retriever.Retriever.open`.
        ranking: As :meth:`~gnnretrieval.index.retriever.Retriever.open`.

    Raises:
        GnnRetrievalError: the address cannot be had, or FastAPI or uvicorn is not installed; or as
            :meth:`~gnnretrieval.index.retriever.Retriever.open`.
    """
    try:
        import uvicorn

        from gnnretrieval.serve.app import create_app
    except ModuleNotFoundError as error:
        raise GnnRetrievalError(f"Serving wants {error.name}: pip install 'gnnretrieval[serve]'.") from None
    from gnnretrieval.index.retriever import Retriever, index_in
    from gnnretrieval.serve.settings import ServeSettings

    with _bound(host, port) as listener:
        say(f"loading {index_in(path)}")
        retriever = Retriever.open(path, endpoint=endpoint, ranking=ranking, device=device)
        _warm_up(retriever)
        app = create_app(retriever, ServeSettings(hosts=LOOPBACK if host in LOOPBACK else ()))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE
        )
        server = uvicorn.Server(config)
        listener.listen(_BACKLOG)  # who comes from now on waits instead of being refused
        name = f"[{host}]" if ":" in host else host
        say(f"{retriever.num_passages:,} passages at http://{name}:{listener.getsockname()[1]} (Ctrl-C stops it)")
        with stopped_by_signals(server):
            server.run(sockets=[listener])
    say("stopped")


def _warm_up(retriever: Retriever) -> None:
    """Load what the first requests would wait for."""
    question = retriever.warm_up(1)
    if question and retriever.has_graph and retriever.num_passages:
        retriever.compare(question, 1)
        retriever.explain(retriever.index.texts.passage(0).id, most=1)


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that has the address, before any work is done for it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise GnnRetrievalError(
            f"{host}: this address cannot be had ({error.strerror}). Give another --host."
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left can be had again
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"port {port} of {host} is in use: stop what uses it, or give another --port."
            elif error.errno == errno.EACCES:
                message = f"port {port} wants more rights than you have: give a --port from 1024 on."
            else:
                message = f"{host}: this address cannot be had ({error.strerror}). Give another --host."
            raise GnnRetrievalError(message) from None
        yield listener


@contextmanager
def stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Inside, signals stop the server: before it listens for them, and when it raises the one it heard again."""

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
