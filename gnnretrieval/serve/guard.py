"""Middleware around every request: access, size of the body, headers of the answer, and timing."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnnretrieval.serve.access import Names, Rate, has_token
from gnnretrieval.serve.failures import TOO_LARGE, failure
from gnnretrieval.serve.served import Served
from gnnretrieval.serve.settings import MAX_BODY, ServeSettings

VERSION_HEADER = "index-version"
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
_OPEN = ("/", "/map", "/docs", "/openapi.json", "/health")  # need no token: they show nothing of the index
_STATIC = "/static/"
_LEFT = 499  # in the metrics: the client left before its request was complete

_TOO_LARGE = failure(413, *TOO_LARGE)
_STOPPING = failure(503, "stopping", "The server stops: ask again when it is back.", {"connection": "close"})


class Guard:
    """ASGI middleware that refuses requests or passes them on.

    It adds to a request's scope ``served``, the version that answers it, and ``is_trusted``: whether it gave the token,
    or none is needed.

    Args:
        app: The application behind it.
        settings: Settings of the server: host names, token and rate.
        served: Returns the version that is served now.
        observe: Called after each request with its route, status and seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        served: Callable[[], Served],
        observe: Callable[[str, int, float], None],
    ) -> None:
        self._app, self._served, self._observe = app, served, observe
        listens = settings.listens
        self._names = Names(settings.allowed_hosts, on_loopback=listens == "loopback") if listens else None
        self._rate = Rate(settings.rate) if settings.rate else None
        self._token = settings.token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse one request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the answer of GET; uvicorn sends no body
            scope = {**scope, "method": "GET"}
        begun, status, is_begun = time.perf_counter(), 500, False
        scope["is_trusted"] = False

        async def guarded_send(message: Message) -> None:
            nonlocal status, is_begun
            if message["type"] == "http.response.start":
                status, is_begun = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if scope["is_trusted"] and "served" in scope:
                    headers[VERSION_HEADER] = scope["served"].version
            await send(message)

        try:
            refused = self._refusal(scope, Headers(scope=scope))
            body = await _whole_body(receive) if refused is None else b""
            if body is None:
                status = _LEFT
            elif refused is not None or len(body) > MAX_BODY:
                await (refused or _TOO_LARGE)(scope, receive, guarded_send)
            else:
                scope["served"] = self._served()
                await self._app(scope, _given_first(body, receive), guarded_send)
        except asyncio.CancelledError:  # the server stops and waits no longer for this
            if not is_begun:
                await _STOPPING(scope, receive, guarded_send)
        finally:
            route = scope.get("route")
            self._observe(getattr(route, "path_format", "other"), status, time.perf_counter() - begun)

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        if self._names is not None and headers.get("host", "") not in self._names:
            return failure(421, "wrong_host", "This server does not answer to this name; --allow-host lets it.")
        if self._rate is not None and (wait := self._rate.wait((scope.get("client") or ("",))[0])):
            again = {"retry-after": str(math.ceil(wait))}
            return failure(429, "too_often", "You ask too often: wait as long as Retry-After says.", again)
        scope["is_trusted"] = self._token is None or has_token(headers.get("authorization", ""), self._token)
        path = scope["path"]
        if not scope["is_trusted"] and path not in _OPEN and not path.startswith(_STATIC):
            asks = {"www-authenticate": "Bearer"}
            return failure(401, "no_token", "This server wants its token: Authorization: Bearer TOKEN.", asks)
        length = headers.get("content-length", "0")
        return _TOO_LARGE if length.isdecimal() and int(length) > MAX_BODY else None


async def _whole_body(receive: Receive) -> bytes | None:
    """A request's body, or its beginning if it is too large; None: the client left.

    The application only sees complete requests, so one that is never completed costs little.
    """
    body = bytearray()
    while len(body) <= MAX_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


def _given_first(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` function that gives ``body`` first, then the messages of ``receive``."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def given() -> Message:
        return next(messages, None) or await receive()

    return given
