"""Run the server: bind the port, load, answer, and stop cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.progress import say

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from gnnretrieval.encoders.reader import Reader
    from gnnretrieval.encoders.settings import ReaderSettings
    from gnnretrieval.index.hybrid import RankingSettings
    from gnnretrieval.index.retriever import Retriever
    from gnnretrieval.serve.listening import Listener
    from gnnretrieval.serve.served import Served
    from gnnretrieval.serve.settings import ServeSettings

_STOPS = (signal.SIGINT, signal.SIGTERM)
NETWORK_RATE = 50.0  # requests a second of one client, if other machines can reach the server


def serve(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "cpu",
    endpoint: str | None = None,
    ranking: RankingSettings | None = None,
    token_file: str | Path | None = None,
    no_auth: bool = False,
    allowed_hosts: tuple[str, ...] = (),
    rate: float | None = None,
    watch: float | None = None,
    feedback: str | Path | None = None,
    explore: float = 0.0,
    reader: ReaderSettings | None = None,
) -> None:
    """Serve an index, or the index of a run, until SIGINT or SIGTERM.

    It then ends within 5 seconds, of which requests in flight have 2. SIGHUP reloads the index.

    Args:
        path: As in :meth:`gnnretrieval.index.retriever.Retriever.open`.
        host: Address or name to listen on.
        port: Port to listen on; 0: any free one.
        device: Where questions are encoded, and passages read.
        endpoint: As in :meth:`~gnnretrieval.index.retriever.Retriever.open`.
        ranking: As in :meth:`~gnnretrieval.index.retriever.Retriever.open`.
        token_file: File with the token that requests must give; None: they need none.
        no_auth: Answer without a token even if other machines can reach the server.
        allowed_hosts: Names that the server answers to, besides its addresses.
        rate: Maximum requests a second of one client; 0: no limit; None: 50, or no limit on a loopback address.
        watch: Seconds between two checks for a new version of the index; None: no checks.
        feedback: File of JSON lines to which thumbs of the explorer are added; wants a token. None: no thumbs.
        explore: Share of the searches in which neighbouring passages are swapped at random
            (:func:`gnnretrieval.feedback.exploration.fair_pairs`).
        reader: Finds answers in the best passages; None: no answers.

    Raises:
        InputError: Other machines can reach the address and there is neither a token nor ``no_auth``, or there are
            both; the token cannot be used (:func:`gnnretrieval.serve.access.read_token`); a further name is none; a
            number is not finite; feedback has no token, or its file cannot be written
            (:class:`gnnretrieval.feedback.thumb_log.ThumbLog`); the reader cannot be loaded
            (:class:`gnnretrieval.encoders.reader.Reader`), or its weights are damaged.
        GnnRetrievalError: The address cannot be bound, FastAPI or uvicorn is not installed, too few files may be open,
            or the index cannot be opened (:meth:`~gnnretrieval.index.retriever.Retriever.open`).
    """
    try:
        import uvicorn

        from gnnretrieval.serve.app import create_app
    except ModuleNotFoundError as error:
        raise GnnRetrievalError(f"Serving wants {error.name}: pip install 'gnnretrieval[serve]'.") from None
    from gnnretrieval.index.retriever import Retriever, index_in
    from gnnretrieval.serve.access import host_name
    from gnnretrieval.serve.listening import bound, is_loopback
    from gnnretrieval.serve.served import open_version
    from gnnretrieval.serve.settings import ServeSettings

    token = _token(token_file, no_auth=no_auth, feedback=feedback)
    with bound(host, port) as listener:
        on_loopback = is_loopback(listener)
        if not on_loopback and token is None and not no_auth:
            raise InputError(
                f"--host {host}: others can reach this address. Give --token-file FILE, or --no-auth to let everybody "
                "ask."
            )
        if rate is None and not on_loopback:
            rate = NETWORK_RATE
        settings = ServeSettings.parse(
            {
                "listens": "loopback" if on_loopback else "network",
                "allowed_hosts": tuple(map(host_name, allowed_hosts)),
                "token": token,
                "rate": rate or None,
                "watch": watch,
                "feedback": None if feedback is None else Path(feedback),
                "explore": explore,
            }
        )

        def opened(older: Served | None = None) -> Retriever:
            how: dict[str, Any] = {"endpoint": endpoint, "ranking": ranking, "device": device}
            before = None if older is None else older.retriever
            return open_version(
                lambda: Retriever.open(path, **how, older=before), settings.in_memory, is_patient=older is not None
            )

        answering = None if reader is None else _opened_reader(reader, device)
        say(f"loading {index_in(path, ranking)}")
        retriever = opened()
        _warm_up(retriever)
        app = create_app(retriever, settings, load=opened, reader=answering)
        server = uvicorn.Server(_config(app, listener, settings))
        listener.listen()  # connections wait from now on instead of being refused
        name = f"[{host}]" if ":" in host else host
        say(f"{retriever.num_passages:,} passages at http://{name}:{listener.getsockname()[1]} (Ctrl-C stops it)")
        del retriever  # so that it is closed when another version replaces it
        with stopped_by_signals(server):
            server.run(sockets=[listener])
    say("stopped")


def _token(token_file: str | Path | None, *, no_auth: bool, feedback: str | Path | None) -> str | None:
    """The token that requests must give; None: none. A log of feedback that cannot be written is refused too."""
    from gnnretrieval.feedback.thumb_log import ThumbLog
    from gnnretrieval.serve.access import read_token

    if no_auth and token_file is not None:
        raise InputError("--no-auth lets everybody ask, and --token-file only who has the token: give one of them.")
    token = None if token_file is None else read_token(Path(token_file))
    if feedback is not None:
        if token is None:
            raise InputError("--feedback wants to know who may give it. Give --token-file FILE too.")
        ThumbLog(feedback)
    return token


def _config(app: FastAPI, listener: Listener, settings: ServeSettings) -> uvicorn.Config:
    """The configuration for uvicorn. The index must be open: its files leave room for fewer connections."""
    import uvicorn

    from gnnretrieval.serve.connections import Limits, protocol_with
    from gnnretrieval.serve.listening import AT_ONCE, connections_that_fit
    from gnnretrieval.serve.logs import LOGGING

    limits = Limits(
        connections_that_fit(settings.max_connections),
        head=settings.head_timeout,
        request=settings.request_timeout,
        answer=settings.answer_timeout,
    )
    return uvicorn.Config(
        app,
        http=protocol_with(limits, lambda: listener.fileno() >= 0),
        ws="none",
        log_config=LOGGING,
        access_log=False,
        server_header=False,
        backlog=AT_ONCE,
        timeout_keep_alive=settings.idle_timeout,
        timeout_graceful_shutdown=settings.stop_timeout,
    )


def _opened_reader(settings: ReaderSettings, device: str) -> Reader:
    """A reader that has read a passage, so that damaged weights are refused before the server listens."""
    from gnnretrieval.data.records import Passage
    from gnnretrieval.encoders.reader import Reader

    say(f"loading {settings.reader}")
    reader = Reader(settings, device)
    reader.read(["warm up"], [Passage("", "", "warm up")])
    return reader


def _warm_up(retriever: Retriever) -> None:
    """Load what the first requests would wait for."""
    question = retriever.warm_up(1)
    if question and retriever.has_graph and retriever.num_passages:
        retriever.compare(question, 1)
        retriever.explain(next(retriever.index.texts.passages()).id, most=1)


@contextmanager
def stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """While this context is open, SIGINT and SIGTERM stop the server.

    This covers the time before uvicorn handles signals itself, and the signal that it raises again when it ends.
    """

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
