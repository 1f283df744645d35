"""Thumbs for passages, which become labels."""

from __future__ import annotations

import logging

from fastapi import APIRouter

from gnnretrieval.serve import schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.routes.dependencies import Here, Now

_log = logging.getLogger(__name__)

router = APIRouter()


@router.post(
    "/feedback",
    responses={
        404: {"model": schemas.ErrorAnswer, "description": "There is no such passage, or the server takes no thumbs."},
        503: {"model": schemas.ErrorAnswer, "description": "It was not written, or too many requests wait."},
    },
    summary="A thumb for a passage; only with --feedback",
)
async def feedback(request: schemas.FeedbackRequest, served: Now, here: Here) -> schemas.FeedbackAnswer:
    """Add a thumb to the log; it is on the disk before the answer."""
    if here.feedback is None:
        message = "This server takes no feedback: start it with --feedback FILE and --token-file."
        raise Refusal(404, "no_feedback", message)
    await here.graph.ask(served.lookups.require, (request.shown,))
    log, thread = here.feedback
    given = (request.question, request.shown, request.passage, request.thumb, request.session, served.version)
    try:
        when = await thread.ask(log.add, given)
    except OSError as error:
        _log.error("Feedback was not written to %s: %s", log.path, error)
        raise Refusal(503, "not_written", "The thumb was not written; the server's log says why.") from None
    return schemas.FeedbackAnswer(version=served.version, when=when)
