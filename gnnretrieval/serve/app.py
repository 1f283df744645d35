"""The FastAPI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from gnnretrieval import __version__
from gnnretrieval.index.comparison import MovedHit
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.serve import failures, schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.guard import Guard
from gnnretrieval.serve.lookups import Lookups
from gnnretrieval.serve.measuring import CONTENT_TYPE, Measurements
from gnnretrieval.serve.settings import MAX_BODY, MAX_ID, MAX_K, MAX_NEIGHBORS, MAX_QUESTION, ServeSettings
from gnnretrieval.serve.worker import Worker

_STATIC = Path(__file__).with_name("static")
_REVALIDATED = {"cache-control": "no-cache"}
_PAGE: dict[str, Any] = {"include_in_schema": False, "response_class": FileResponse}
_DESCRIPTION = "Ranked passages for questions, what the graph moved, and why. Every error is a code and one sentence."

NodeId = Annotated[str, Query(min_length=1, max_length=MAX_ID, description="The node's id.")]
PathId = Annotated[str, PathParameter(min_length=1, max_length=MAX_ID)]


def create_app(retriever: Retriever, settings: ServeSettings | None = None) -> FastAPI:
    """The application that serves ``retriever``, with two threads: one for questions, one for the graph.

    Args:
        retriever: What it serves; used by nothing else meanwhile.
        settings: How it works.
    """
    settings = settings or ServeSettings()
    measurements = Measurements()
    lookups = Lookups(retriever)
    limits: dict[str, Any] = {"max_waiting": settings.max_waiting, "timeout": settings.timeout}
    questions = Worker(
        lambda kind, items: _answers(retriever, kind, items),
        batch_size=settings.batch_size,
        wait=settings.batch_wait,
        observe=measurements.batch,
        **limits,
    )
    graph = Worker(lambda job, items: [job(*item) for item in items], batch_size=1, wait=0, **limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        questions.close()
        graph.close()

    app = FastAPI(
        title="gnnretrieval",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={
            status: {"model": schemas.ErrorAnswer, "description": what}
            for status, what in (
                (400, "The body cannot be read."),
                (413, "The body is too large."),
                (421, "The server is called by another name than it answers to."),
                (422, "The request is not as described here."),
                (503, "Too many requests wait."),
                (504, "It took too long."),
            )
        },
    )
    failures.install(app)
    app.add_middleware(Guard, hosts=settings.hosts, observe=measurements.request)
    not_found: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorAnswer, "description": "No such thing."}}

    @app.post("/search", responses=not_found, summary="Ranked passages for a question")
    async def search(request: schemas.SearchRequest) -> schemas.SearchAnswer:
        begun = time.perf_counter()
        system = request.system or retriever.system
        if system != retriever.system and not (system == "dual-encoder" and retriever.has_graph):
            raise Refusal(404, "no_such_system", f"This server has {retriever.system}, and no {system}.")
        hits = await questions.ask(("search", request.k, system), request.question)
        return schemas.SearchAnswer(
            question=request.question,
            system=system,
            milliseconds=_since(begun),
            hits=[schemas.HitOut.model_validate(hit._asdict()) for hit in hits],
        )

    @app.get("/search", responses=not_found, summary="The same, asked in the address")
    async def search_by_address(parameters: Annotated[schemas.SearchParameters, Query()]) -> schemas.SearchAnswer:
        return await search(parameters)

    @app.post("/compare", responses=not_found, summary="Both encoders' rankings, and what moved")
    async def compare(request: schemas.CompareRequest) -> schemas.CompareAnswer:
        begun = time.perf_counter()
        lookups.require_graph()
        found = await questions.ask(("compare", request.k), request.question)
        return schemas.CompareAnswer(
            question=request.question,
            milliseconds=_since(begun),
            depth=found.depth,
            dual_encoder=[_moved(one) for one in found.dual_encoder],
            gnn_encoder=[_moved(one) for one in found.gnn_encoder],
        )

    @app.get("/passages/{id:path}", responses=not_found, summary="A passage")
    async def passage(id: PathId) -> schemas.PassageOut:
        found: schemas.PassageOut = await graph.ask(lookups.passage, (id,))
        return found

    @app.get("/queries/{id:path}", responses=not_found, summary="A training question")
    async def query(id: PathId) -> schemas.QueryOut:
        found: schemas.QueryOut = await graph.ask(lookups.query, (id,))
        return found

    @app.get("/graph", responses=not_found, summary="The graph's figures")
    async def figures() -> schemas.GraphAnswer:
        lookups.require_graph()
        found: schemas.GraphAnswer = await graph.ask(lambda: lookups.graph, ())
        return found

    @app.get("/graph/neighbors", responses=not_found, summary="A node, its neighbours by attention, and theirs")
    async def neighbors(
        id: NodeId,
        kind: Annotated[Literal["passage", "query"], Query(description="Of what the id is.")] = "passage",
        most: Annotated[int, Query(ge=1, le=MAX_NEIGHBORS, description="Neighbours wanted.")] = 10,
    ) -> schemas.NeighborsAnswer:
        lookups.require_graph()
        found: schemas.NeighborsAnswer = await graph.ask(lookups.neighbors, (id, kind == "query", most))
        return found

    @app.get("/examples", summary="Questions to try")
    async def examples() -> schemas.ExamplesAnswer:
        found: schemas.ExamplesAnswer = await graph.ask(lambda: lookups.examples, ())
        return found

    @app.get(
        "/health",
        responses={503: {"model": schemas.HealthAnswer, "description": "It answers no questions any more."}},
        summary="Whether it answers, and what it serves",
    )
    async def health(response: Response) -> schemas.HealthAnswer:
        ready = questions.is_alive and graph.is_alive
        response.status_code = 200 if ready else 503
        return schemas.HealthAnswer(
            status="ready" if ready else "failed",
            version=__version__,
            system=retriever.system,
            encoder=Path(retriever.index.encoder_settings.checkpoint).name,  # a checkpoint may be a path of the server
            passages=retriever.num_passages,
            graph=retriever.has_graph,
            limits={
                "question": MAX_QUESTION,
                "k": MAX_K,
                "neighbors": MAX_NEIGHBORS,
                "id": MAX_ID,
                "body_bytes": MAX_BODY,
            },
        )

    @app.get("/metrics", response_class=Response, summary="Counts and times, for Prometheus")
    async def metrics() -> Response:
        return Response(measurements.text(), media_type=CONTENT_TYPE)

    @app.get("/", **_PAGE)
    async def explorer() -> FileResponse:
        return FileResponse(_STATIC / "explorer.html", headers=_REVALIDATED)

    @app.get("/docs", **_PAGE)
    async def docs() -> FileResponse:
        return FileResponse(_STATIC / "docs.html", headers=_REVALIDATED)

    app.mount("/static", StaticFiles(directory=_STATIC))
    return app


def _answers(retriever: Retriever, kind: tuple[Any, ...], questions: Sequence[str]) -> Sequence[Any]:
    """Answers to questions that ask for the same."""
    if kind[0] == "search":
        return retriever.search_all(questions, *kind[1:])
    return retriever.compare_all(questions, *kind[1:])


def _moved(one: MovedHit) -> schemas.MovedOut:
    return schemas.MovedOut.model_validate({**one.hit._asdict(), "elsewhere": one.elsewhere})


def _since(begun: float) -> float:
    return round(1000 * (time.perf_counter() - begun), 2)
