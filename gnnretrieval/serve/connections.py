"""Connections with deadlines for requests and answers, and with a limit on how many are open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOOK = 1.0  # maximum seconds between two checks of a connection


class Limits(NamedTuple):
    """Limits of connections.

    Attributes:
        connections: Maximum number of open connections; one more replaces the one that has been silent longest.
        head: Seconds from a request's first byte (of the first request: from the connection's opening) to the end of
            its head.
        request: Seconds from the same moment to the end of its body.
        answer: Seconds in which a client must read what was sent to it.
    """

    connections: int
    head: float
    request: float
    answer: float


def protocol_with(limits: Limits, is_open: Callable[[], bool] = lambda: True) -> Any:
    """The factory of connections for uvicorn's configuration (``http=``).

    Args:
        limits: Limits of the connections.
        is_open: Whether the server still listens; a connection that was accepted just before it stopped is closed.
    """
    return partial(Connection, limits, {}, is_open)


def _refusal(status: str, code: str, message: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 1\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


_LATE = _refusal("408 Request Timeout", "too_slow", "The request did not arrive in time: send it faster.")
_FULL = _refusal("503 Service Unavailable", "busy", "Too many connections are open: ask again in a moment.")


class Connection(H11Protocol):
    """uvicorn's connection with deadlines, which can be replaced by a new one when too many are open.

    Args:
        limits: Limits of the connections.
        silent: The open connections that wait for no answer, the longest silent first; shared by all connections.
        is_open: As in :func:`protocol_with`.
        arguments: Positional arguments of uvicorn's class.
        named: Keyword arguments of uvicorn's class.
    """

    def __init__(
        self,
        limits: Limits,
        silent: dict[Connection, None],
        is_open: Callable[[], bool],
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._limits, self._silent, self._is_open = limits, silent, is_open
        self._begun: float | None = None  # when the incomplete request began
        self._unsent: float | None = None  # since when the client has left output unread
        self._timer: asyncio.TimerHandle | None = None
        self._look_every = min(_LOOK, limits.head / 4, limits.request / 4, limits.answer / 4)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if too many are open, replace the longest silent one, or refuse if none is silent."""
        is_full = len(self.connections) >= self._limits.connections
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._timer = self.loop.call_later(self._look_every, self._look)
        if not self._is_open():
            self._leave()
            return
        if is_full and not self._silent:
            transport.write(_FULL)
            transport.close()
            return
        if is_full:
            next(iter(self._silent))._leave()
        self._silent[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._silent.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read data, and note whether a whole request has arrived."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Go on to the next request, and note whether it has arrived."""
        super().on_response_complete()
        self._note()

    def shutdown(self) -> None:
        """Close the connection after its pending answer, or at once if there is none."""
        if self in self._silent:
            self._leave()
        else:
            super().shutdown()

    def _note(self) -> None:
        """Note whether a request is arriving, and whether an answer is due."""
        state = self.conn.their_state
        is_arriving = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        self._begun = (self._begun or self.loop.time()) if is_arriving else None
        if state is h11.IDLE or is_arriving:
            self._silent.setdefault(self)
        else:
            self._silent.pop(self, None)

    def _look(self) -> None:
        """Close the connection if it is past a deadline, and schedule the next check."""
        now = self.loop.time()
        self._timer = self.loop.call_later(self._look_every, self._look)
        unsent = self.transport.get_write_buffer_size() > 0
        self._unsent = (self._unsent or now) if unsent else None
        if self._unsent is not None and now - self._unsent > self._limits.answer:
            self._leave()
        elif self._begun is not None and not self.transport.is_closing():
            in_body = self.conn.their_state is h11.SEND_BODY
            if now - self._begun > (self._limits.request if in_body else self._limits.head):
                self._refuse_late(in_body)

    def _refuse_late(self, in_body: bool) -> None:
        """Close the connection, with an answer 408 if a request has begun and its answer has not."""
        is_answered = in_body and self.cycle.response_started
        if is_answered or not (in_body or self.conn.trailing_data[0]):
            self._leave()
            return
        self.transport.write(_LATE)
        self.transport.close()

    def _leave(self) -> None:
        """Close the connection at once and drop unsent output."""
        self._silent.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()
