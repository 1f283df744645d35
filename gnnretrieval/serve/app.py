"""The FastAPI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from gnnretrieval import __version__
from gnnretrieval.encoders.reader import Reader
from gnnretrieval.feedback.thumb_log import ThumbLog
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.serve import failures, schemas
from gnnretrieval.serve.guard import Guard
from gnnretrieval.serve.measuring import Measurements
from gnnretrieval.serve.reloading import reloading
from gnnretrieval.serve.routes import feedback, graph, maps, pages, questions, status
from gnnretrieval.serve.routes.dependencies import AnswerSource, Feedback, Serving
from gnnretrieval.serve.served import CurrentVersion, Load, Served
from gnnretrieval.serve.settings import STATIC, ServeSettings
from gnnretrieval.serve.worker import Worker

_DESCRIPTION = "Ranked passages for questions, what the graph moved, and why. Every error is a code and one sentence."
_ERRORS = {
    400: "The body cannot be read.",
    401: "The token is missing, or another.",
    413: "The body is too large.",
    421: "The server is called by another name than it answers to.",
    422: "The request is not as described here.",
    429: "The client asks too often.",
    503: "Too many requests wait.",
    504: "It took too long.",
}


def create_app(
    retriever: Retriever,
    settings: ServeSettings | None = None,
    *,
    load: Load | None = None,
    reader: Reader | None = None,
) -> FastAPI:
    """The application that serves ``retriever``.

    It works in three threads: one ranks passages, one reads the graph, one loads new versions of the index. Two more
    write feedback and find answers, so that no ranking waits for the disk or the reader.

    Args:
        retriever: The retriever to serve; nothing else may use it meanwhile.
        settings: Settings; None: the defaults.
        load: Opens the index's current version, for a reload; None: no reloads.
        reader: Finds answers in the best passages; nothing else may use it meanwhile. None: no answers.

    Raises:
        InputError: The file for feedback cannot be written (:class:`gnnretrieval.feedback.thumb_log.ThumbLog`).
    """
    serving = _serving(retriever, settings or ServeSettings(), load, reader)
    versions = serving.versions

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with reloading(versions, serving.settings.watch):
            yield
        end = time.monotonic() + serving.settings.stop_timeout / 2
        for thread in serving.threads():
            thread.close(max(0.0, end - time.monotonic()))

    app = FastAPI(
        title="gnnretrieval",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={code: {"model": schemas.ErrorAnswer, "description": what} for code, what in _ERRORS.items()},
    )
    app.state.serving = serving
    failures.install(app)
    observe = serving.measurements.request
    app.add_middleware(Guard, settings=serving.settings, served=lambda: versions.current, observe=observe)
    for subject in (questions, graph, maps, feedback, status, pages):
        app.include_router(subject.router)
    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def _serving(retriever: Retriever, settings: ServeSettings, load: Load | None, reader: Reader | None) -> Serving:
    """The server's threads, and its first version."""
    measurements = Measurements()
    log = None if settings.feedback is None else ThumbLog(settings.feedback)
    limits: dict[str, Any] = {"max_waiting": settings.max_waiting, "timeout": settings.timeout}
    questions_thread = Worker(
        lambda kind, items: _answers(*kind, items),
        batch_size=settings.batch_size,
        wait=settings.batch_wait,
        observe=measurements.batch,
        **limits,
    )

    def one_by_one() -> Worker:
        return Worker(lambda job, items: [job(*item) for item in items], batch_size=1, wait=0, **limits)

    graph_thread = one_by_one()
    feedback_in = None if log is None else Feedback(log, one_by_one())
    answers = None if reader is None else AnswerSource(reader, one_by_one())

    async def warm_up(served: Served) -> None:
        """Send first requests through the threads that will answer: only one thread at a time may use an encoder."""
        await graph_thread.ask(served.lookups.warm_up, ())
        question = await questions_thread.ask((served.retriever, "warm_up"), 1)
        if question and served.retriever.has_graph and served.retriever.num_passages:
            await questions_thread.ask((served.retriever, "compare_all", 1), question)

    versions = CurrentVersion(
        Served(retriever, is_own=load is not None),
        load,
        warm_up,
        lambda ended: measurements.reload(ended.version, ended.failed),
    )
    measurements.serves(versions.current.version)
    return Serving(settings, questions_thread, graph_thread, versions, measurements, feedback_in, answers)


def _answers(retriever: Retriever, job: str, *rest: Any) -> Sequence[Any]:
    """Answers of one version to a batch of the same ``job``; ``rest`` is the job's arguments, then the batch."""
    *how, items = rest
    if job == "warm_up":
        return [retriever.warm_up(k) for k in items]
    answers: Sequence[Any] = getattr(retriever, job)(items, *how)
    return answers
