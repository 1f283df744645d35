"""Errors as a client sees them: a code and one sentence, without the server's paths or texts."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gnnretrieval.encoders.endpoint import EndpointError
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.index.explanations import NoWhatIf
from gnnretrieval.index.stored_questions import UnknownQuestion
from gnnretrieval.serve.settings import MAX_BODY
from gnnretrieval.serve.worker import Busy, TimedOut
from gnnretrieval.training.gnn.message_part import TooLarge

_log = logging.getLogger(__name__)
TOO_LARGE = ("too_large", f"The request's body is above {MAX_BODY:,} bytes: ask less at once.")


class Refusal(Exception):
    """Raised for a request that cannot be answered.

    Args:
        status: HTTP status.
        code: What went wrong, for programs.
        message: What went wrong, for people, in one sentence.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def failure(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The JSON response for an error."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def install(app: FastAPI) -> None:
    """Make ``app`` answer every error with :func:`failure`."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> JSONResponse:
        return failure(error.status, error.code, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        is_json = "json" in request.headers.get("content-type", "").lower()
        if first["loc"] == ("body",) and first["type"] != "missing" and not is_json:
            return failure(422, "invalid_request", "The body is not sent as JSON: add content-type: application/json.")
        return failure(422, "invalid_request", _sentence(first))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        message = {
            400: "The body cannot be read: send JSON in UTF-8.",
            404: "There is nothing at this address; /docs lists what there is.",
            405: "This address does not answer this method; /docs lists what it answers.",
        }.get(status, f"{status.phrase}.")
        return failure(status, status.name.lower(), message, dict(error.headers or {}))

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> JSONResponse:
        return failure(503, "busy", "Too many requests wait already: ask again in a moment.", {"retry-after": "1"})

    @app.exception_handler(TimedOut)
    async def timed_out(request: Request, error: TimedOut) -> JSONResponse:
        return failure(504, "timed_out", "This took too long and was given up: ask again, or for less.")

    @app.exception_handler(UnknownQuestion)
    async def unknown_question(request: Request, error: UnknownQuestion) -> JSONResponse:
        message = "This server's encoder is not here, and it has no vector of this question: ask one of its graph's."
        return failure(422, "unknown_question", message)

    @app.exception_handler(NoWhatIf)
    @app.exception_handler(TooLarge)
    async def no_what_if(request: Request, error: GnnRetrievalError) -> JSONResponse:
        return failure(422, "no_what_if", str(error))

    @app.exception_handler(EndpointError)
    async def no_encoder(request: Request, error: EndpointError) -> JSONResponse:
        _log.warning("%s", error)
        return failure(502, "encoder_failed", "The encoder that this server asks did not answer; its log says why.")

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return failure(500, "failed", "The server failed to answer this; its log says why.")


def _sentence(error: Any) -> str:
    """A validation error as one sentence, without the rejected value."""
    where = ".".join(str(part) for part in error["loc"][1:] if isinstance(part, str)) or str(error["loc"][0])
    if error["type"] == "json_invalid":
        return "The body is not JSON."
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}."
