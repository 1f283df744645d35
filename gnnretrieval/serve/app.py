"""The FastAPI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles

from gnnretrieval import __version__
from gnnretrieval.index.comparison import MovedHit
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.serve import failures, schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.guard import Guard
from gnnretrieval.serve.map_page import served_page
from gnnretrieval.serve.measuring import CONTENT_TYPE, Measurements
from gnnretrieval.serve.reloading import reloading
from gnnretrieval.serve.served import Load, Served, Versions
from gnnretrieval.serve.settings import MAX_BODY, MAX_ID, MAX_K, MAX_NEIGHBORS, MAX_QUESTION, ServeSettings
from gnnretrieval.serve.worker import Worker

_STATIC = Path(__file__).with_name("static")
_REVALIDATED = {"cache-control": "no-cache"}
_PAGE: dict[str, Any] = {"include_in_schema": False, "response_class": FileResponse}
_DESCRIPTION = "Ranked passages for questions, what the graph moved, and why. Every error is a code and one sentence."
_POINTS = (
    "Of the passages rows (uint32), points before and after, and displacements (float32); then of the questions rows "
    "and points. Four bytes a number, the lowest first. /map/figures says how many there are."
)

NodeId = Annotated[str, Query(min_length=1, max_length=MAX_ID, description="The node's id.")]


async def _served(request: Request) -> Served:
    """The version that answers a request; the guard chose it when the request arrived."""
    served: Served = request.scope["served"]
    return served


Now = Annotated[Served, Depends(_served)]
PathId = Annotated[str, PathParameter(min_length=1, max_length=MAX_ID)]


def create_app(retriever: Retriever, settings: ServeSettings | None = None, *, load: Load | None = None) -> FastAPI:
    """The application that serves ``retriever``.

    It works in three threads: one answers questions, one reads the graph, one loads new versions of the index.

    Args:
        retriever: The retriever to serve; nothing else may use it meanwhile.
        settings: Settings; None: the defaults.
        load: Opens the index's current version, for a reload; None: no reloads.
    """
    settings = settings or ServeSettings()
    measurements = Measurements()
    limits: dict[str, Any] = {"max_waiting": settings.max_waiting, "timeout": settings.timeout}
    questions = Worker(
        lambda kind, items: _answers(*kind, items),
        batch_size=settings.batch_size,
        wait=settings.batch_wait,
        observe=measurements.batch,
        **limits,
    )
    graph = Worker(lambda job, items: [job(*item) for item in items], batch_size=1, wait=0, **limits)

    async def warm_up(served: Served) -> None:
        """Send first requests through the threads that will answer: only one thread at a time may use an encoder."""
        await graph.ask(served.lookups.warm_up, ())
        question = await questions.ask((served.retriever, "warm_up"), 1)
        if question and served.retriever.has_graph and served.retriever.num_passages:
            await questions.ask((served.retriever, "compare_all", 1), question)

    versions = Versions(
        Served(retriever, is_own=load is not None),
        load,
        warm_up,
        lambda ended: measurements.reload(ended.version, ended.failed),
    )
    measurements.serves(versions.current.version)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with reloading(versions, settings.watch):
            yield
        end = time.monotonic() + settings.stop_timeout / 2
        for one in (questions, graph, versions):
            one.close(max(0.0, end - time.monotonic()))

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
                (401, "The token is missing, or another."),
                (413, "The body is too large."),
                (421, "The server is called by another name than it answers to."),
                (422, "The request is not as described here."),
                (429, "The client asks too often."),
                (503, "Too many requests wait."),
                (504, "It took too long."),
            )
        },
    )
    app.state.versions = versions
    failures.install(app)
    app.add_middleware(Guard, settings=settings, served=lambda: versions.current, observe=measurements.request)
    not_found: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorAnswer, "description": "No such thing."}}

    @app.post("/search", responses=not_found, summary="Ranked passages for a question")
    async def search(request: schemas.SearchRequest, served: Now) -> schemas.SearchAnswer:
        begun, retriever = time.perf_counter(), served.retriever
        system = request.system or retriever.system
        if system != retriever.system and not (system == "dual-encoder" and retriever.has_graph):
            raise Refusal(404, "no_such_system", f"This server has {retriever.system}, and no {system}.")
        hits = await questions.ask((retriever, "search_all", request.k, system), request.question)
        return schemas.SearchAnswer(
            version=served.version,
            question=request.question,
            system=system,
            milliseconds=_since(begun),
            hits=[schemas.HitOut.model_validate(hit._asdict()) for hit in hits],
        )

    @app.get("/search", responses=not_found, summary="The same, asked in the address")
    async def search_by_address(
        parameters: Annotated[schemas.SearchParameters, Query()], served: Now
    ) -> schemas.SearchAnswer:
        return await search(parameters, served)

    @app.post("/compare", responses=not_found, summary="Both encoders' rankings, and what moved")
    async def compare(request: schemas.CompareRequest, served: Now) -> schemas.CompareAnswer:
        begun = time.perf_counter()
        served.lookups.require_graph()
        found = await questions.ask((served.retriever, "compare_all", request.k), request.question)
        return schemas.CompareAnswer(
            version=served.version,
            question=request.question,
            milliseconds=_since(begun),
            depth=found.depth,
            dual_encoder=[_moved(one) for one in found.dual_encoder],
            gnn_encoder=[_moved(one) for one in found.gnn_encoder],
        )

    @app.get("/passages/{id:path}", responses=not_found, summary="A passage")
    async def passage(id: PathId, served: Now) -> schemas.PassageOut:
        found: schemas.PassageOut = await graph.ask(served.lookups.passage, (id,))
        return found

    @app.get("/queries/{id:path}", responses=not_found, summary="A training question")
    async def query(id: PathId, served: Now) -> schemas.QueryOut:
        found: schemas.QueryOut = await graph.ask(served.lookups.query, (id,))
        return found

    @app.get("/graph", responses=not_found, summary="The graph's figures")
    async def figures(served: Now) -> schemas.GraphAnswer:
        served.lookups.require_graph()
        found: schemas.GraphAnswer = await graph.ask(lambda: served.lookups.graph, ())
        return found

    @app.get("/graph/neighbors", responses=not_found, summary="A node, its neighbours by attention, and theirs")
    async def neighbors(
        served: Now,
        id: NodeId,
        kind: Annotated[Literal["passage", "query"], Query(description="Of what the id is.")] = "passage",
        most: Annotated[int, Query(ge=1, le=MAX_NEIGHBORS, description="Neighbours wanted.")] = 10,
    ) -> schemas.NeighborsAnswer:
        served.lookups.require_graph()
        found: schemas.NeighborsAnswer = await graph.ask(served.lookups.neighbors, (id, kind == "query", most))
        return found

    @app.get("/map/figures", responses=not_found, summary="The map's counts, and what two dimensions keep")
    async def map_figures(served: Now) -> schemas.MapAnswer:
        lookups = served.lookups
        found: schemas.MapAnswer = await graph.ask(lambda: lookups.map.figures(lookups.version), ())
        return found

    @app.get(
        "/map/points",
        responses={**not_found, 200: {"content": {"application/octet-stream": {}}, "description": _POINTS}},
        response_class=Response,
        summary="The map's points, as binary",
    )
    async def map_points(served: Now) -> Response:
        lookups = served.lookups
        return Response(await graph.ask(lambda: lookups.map.points, ()), media_type="application/octet-stream")

    @app.get("/map/texts", responses=not_found, summary="Titles and first words by row in the map")
    async def map_texts(
        served: Now,
        rows: Annotated[str, Query(pattern=r"^\d{1,10}(,\d{1,10})*$", max_length=4096, description="Rows: 1,5,7.")],
        kind: Annotated[Literal["passage", "question"], Query(description="Of what the rows are.")] = "passage",
    ) -> schemas.MapTextsAnswer:
        lookups, wanted = served.lookups, [int(row) for row in rows.split(",")]
        found: schemas.MapTextsAnswer = await graph.ask(lambda: lookups.map.texts(lookups.version, kind, wanted), ())
        return found

    @app.get("/map/named", responses=not_found, summary="The passage with an id, or those whose id or title has a name")
    async def map_named(
        served: Now, name: Annotated[str, Query(min_length=1, max_length=MAX_ID, description="An id, or words.")]
    ) -> schemas.MapTextsAnswer:
        lookups = served.lookups
        found: schemas.MapTextsAnswer = await graph.ask(lambda: lookups.map.named(lookups.version, name), ())
        return found

    @app.get("/examples", summary="Questions to try")
    async def examples(served: Now) -> schemas.ExamplesAnswer:
        found: schemas.ExamplesAnswer = await graph.ask(lambda: served.lookups.examples, ())
        return found

    @app.get(
        "/health",
        responses={503: {"model": schemas.HealthAnswer, "description": "It answers no questions any more."}},
        summary="Whether it answers; with the token, what it serves",
    )
    async def health(request: Request, response: Response, served: Now) -> schemas.HealthAnswer | schemas.StatusAnswer:
        ready = questions.is_alive and graph.is_alive
        response.status_code = 200 if ready else 503
        status: Literal["ready", "failed"] = "ready" if ready else "failed"
        if not request.scope["is_trusted"]:
            return schemas.StatusAnswer(status=status)
        retriever, last = served.retriever, versions.last
        return schemas.HealthAnswer(
            status=status,
            version=served.version,
            gnnretrieval=__version__,
            system=retriever.system,
            encoder=Path(retriever.index.encoder_settings.checkpoint).name,  # a checkpoint may be a path on the server
            passages=retriever.num_passages,
            graph=retriever.has_graph,
            reload=None if last is None else schemas.ReloadOut(**last._asdict()),
            limits={
                "question": MAX_QUESTION,
                "k": MAX_K,
                "neighbors": MAX_NEIGHBORS,
                "id": MAX_ID,
                "body_bytes": MAX_BODY,
            },
        )

    @app.post(
        "/reload",
        responses={
            404: {"model": schemas.ErrorAnswer, "description": "The server has no token, or serves one version alone."},
            409: {"model": schemas.ErrorAnswer, "description": "It was not loaded; the version before is served."},
        },
        summary="Serve the version of the index that is there now",
    )
    async def reload() -> schemas.ReloadOut:
        if settings.token is None or not versions.can_reload:
            message = "Only a server with a token is reloaded so: start it with --token-file, or send it SIGHUP."
            raise Refusal(404, "no_reload", message)
        ended = await versions.reload()
        if ended.failed:
            message = "The index was not loaded, and the version before is served still; the server's log says why."
            raise Refusal(409, "not_reloaded", message)
        return schemas.ReloadOut(**ended._asdict())

    @app.get("/metrics", response_class=Response, summary="Counts and times, for Prometheus")
    async def metrics() -> Response:
        return Response(measurements.text(), media_type=CONTENT_TYPE)

    @app.get("/", **_PAGE)
    async def explorer() -> FileResponse:
        return FileResponse(_STATIC / "explorer.html", headers=_REVALIDATED)

    page_of_map = served_page()

    @app.get("/map", include_in_schema=False, response_class=HTMLResponse)
    async def map_page() -> HTMLResponse:
        return HTMLResponse(page_of_map, headers=_REVALIDATED)

    @app.get("/docs", **_PAGE)
    async def docs() -> FileResponse:
        return FileResponse(_STATIC / "docs.html", headers=_REVALIDATED)

    app.mount("/static", StaticFiles(directory=_STATIC))
    return app


def _answers(retriever: Retriever, job: str, *rest: Any) -> Sequence[Any]:
    """Answers of one version to a batch of the same ``job``; ``rest`` is the job's arguments, then the batch."""
    *how, items = rest
    if job == "warm_up":
        return [retriever.warm_up(k) for k in items]
    found: Sequence[Any] = getattr(retriever, job)(items, *how)
    return found


def _moved(one: MovedHit) -> schemas.MovedOut:
    return schemas.MovedOut.model_validate({**one.hit._asdict(), "elsewhere": one.elsewhere})


def _since(begun: float) -> float:
    return round(1000 * (time.perf_counter() - begun), 2)
