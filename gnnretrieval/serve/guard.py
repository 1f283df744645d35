"""Around every request: who may ask, how much, what the answer's headers forbid, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnnretrieval.serve.failures import TOO_LARGE, failure
from gnnretrieval.serve.settings import MAX_BODY

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class _TooLarge(HTTPException):
    """A body went on past what is read; an HTTPException, which FastAPI lets through where it reads a body."""

    def __init__(self) -> None:
        super().__init__(413)


class Guard:
    """ASGI middleware.

    Args:
        app: What answers.
        hosts: Names that a request may call the server by; empty: any. A page elsewhere whose name was made to point
            at this machine (DNS rebinding) is kept out by them.
        observe: Called with a route, a status and seconds.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], observe: Callable[[str, int, float], None]) -> None:
        self._app, self._hosts, self._observe = app, hosts, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, read = time.perf_counter(), 500, 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        async def limited_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MAX_BODY:
                raise _TooLarge
            return message

        try:
            refused = self._refusal(Headers(scope=scope))
            if refused is None:
                await self._app(scope, limited_receive, guarded_send)
            else:
                await refused(scope, receive, guarded_send)
        finally:
            route = scope.get("route")
            self._observe(getattr(route, "path_format", "other"), status, time.perf_counter() - begun)

    def _refusal(self, headers: Headers) -> ASGIApp | None:
        if self._hosts and _name(headers.get("host", "")) not in self._hosts:
            return failure(421, "wrong_host", f"This server answers to {', '.join(self._hosts)} alone.")
        length = headers.get("content-length", "0")
        return _too_large() if length.isdecimal() and int(length) > MAX_BODY else None


def _too_large() -> ASGIApp:
    return failure(413, *TOO_LARGE)


def _name(host: str) -> str:
    """A Host header without its port."""
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0].lower()
