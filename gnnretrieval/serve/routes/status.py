"""Whether the server answers, what it counts, and its reload."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request, Response

from gnnretrieval import __version__
from gnnretrieval.serve import schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.measuring import CONTENT_TYPE
from gnnretrieval.serve.routes.dependencies import Here, Now
from gnnretrieval.serve.settings import LIMITS

router = APIRouter()


@router.get(
    "/health",
    responses={503: {"model": schemas.HealthAnswer, "description": "It answers no questions any more."}},
    summary="Whether it answers; with the token, what it serves",
)
async def health(
    request: Request, response: Response, served: Now, here: Here
) -> schemas.HealthAnswer | schemas.StatusAnswer:
    """What is served."""
    ready = here.questions.is_alive and here.graph.is_alive
    response.status_code = 200 if ready else 503
    status: Literal["ready", "failed"] = "ready" if ready else "failed"
    if not request.scope["is_trusted"]:
        return schemas.StatusAnswer(status=status)
    retriever, last = served.retriever, here.versions.last
    return schemas.HealthAnswer(
        status=status,
        version=served.version,
        gnnretrieval=__version__,
        system=retriever.system,
        encoder=Path(retriever.index.encoder_settings.checkpoint).name,  # a checkpoint may be a path on the server
        passages=retriever.num_passages,
        graph=retriever.has_graph,
        feedback=here.feedback is not None,
        reader=here.answers is not None,
        update=served.lookups.update is not None,
        reload=None if last is None else schemas.ReloadOut(**last._asdict()),
        limits=LIMITS,
    )


@router.post(
    "/reload",
    responses={
        404: {"model": schemas.ErrorAnswer, "description": "The server has no token, or serves one version alone."},
        409: {"model": schemas.ErrorAnswer, "description": "It was not loaded; the version before is served."},
    },
    summary="Serve the version of the index that is there now",
)
async def reload(here: Here) -> schemas.ReloadOut:
    """Load the index again."""
    if here.settings.token is None or not here.versions.can_reload:
        message = "Only a server with a token is reloaded so: start it with --token-file, or send it SIGHUP."
        raise Refusal(404, "no_reload", message)
    ended = await here.versions.reload()
    if ended.failed:
        message = "The index was not loaded, and the version before is served still; the server's log says why."
        raise Refusal(409, "not_reloaded", message)
    return schemas.ReloadOut(**ended._asdict())


@router.get("/metrics", response_class=Response, summary="Counts and times, for Prometheus")
async def metrics(here: Here) -> Response:
    """Counts and times."""
    return Response(here.measurements.text(), media_type=CONTENT_TYPE)
