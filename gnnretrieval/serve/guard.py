"""Around every request: who may ask, how much, what the answer's headers say, and how long it took."""

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
_OPEN = ("/", "/docs", "/openapi.json", "/health")  # pages and the API's description hold nothing of the index
_STATIC = "/static/"
_LEFT = 499  # in the measurements: the client left before it had asked

_TOO_LARGE = failure(413, *TOO_LARGE)
_STOPPING = failure(503, "stopping", "The server stops: ask again when it is back.", {"connection": "close"})


class Guard:
    """ASGI middleware. It puts into a request's scope what answers it (``served``) and whether it gave the token.

    Args:
        app: What answers.
        settings: Names, token and rate.
        served: Gives what is served now.
        observe: Called with a route, a status and seconds.
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
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
        except asyncio.CancelledError:  # the server stops, and this took longer than it may then
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
    """A request's body, or its beginning where it is too large; None: the client left.

    The application sees a request only when it is whole: one that never is costs little.
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
    """Gives the body, and then what comes."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def given() -> Message:
        return next(messages, None) or await receive()

    return given
