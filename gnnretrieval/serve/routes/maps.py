"""The map's figures, points and texts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from gnnretrieval.serve import schemas
from gnnretrieval.serve.routes.dependencies import NOT_FOUND, Here, Now
from gnnretrieval.serve.settings import MAX_ID

router = APIRouter(prefix="/map")
_POINTS = (
    "Of the passages rows (uint32), points before and after, and displacements (float32); then of the questions rows "
    "and points. Four bytes a number, the lowest first. /map/figures says how many there are."
)


@router.get("/figures", responses=NOT_FOUND, summary="The map's counts, and what two dimensions keep")
async def map_figures(served: Now, here: Here) -> schemas.MapAnswer:
    """Counts of the map."""
    lookups = served.lookups
    answer: schemas.MapAnswer = await here.graph.ask(lambda: lookups.map.figures(lookups.version), ())
    return answer


@router.get(
    "/points",
    responses={**NOT_FOUND, 200: {"content": {"application/octet-stream": {}}, "description": _POINTS}},
    response_class=Response,
    summary="The map's points, as binary",
)
async def map_points(served: Now, here: Here) -> Response:
    """Points before and after."""
    lookups = served.lookups
    return Response(await here.graph.ask(lambda: lookups.map.points, ()), media_type="application/octet-stream")


@router.get("/texts", responses=NOT_FOUND, summary="Titles and first words by row in the map")
async def map_texts(
    served: Now,
    here: Here,
    rows: Annotated[str, Query(pattern=r"^\d{1,10}(,\d{1,10})*$", max_length=4096, description="Rows: 1,5,7.")],
    kind: Annotated[Literal["passage", "question"], Query(description="Of what the rows are.")] = "passage",
) -> schemas.MapTextsAnswer:
    """First words of passages or questions."""
    lookups, wanted = served.lookups, [int(row) for row in rows.split(",")]
    answer: schemas.MapTextsAnswer = await here.graph.ask(lambda: lookups.map.texts(lookups.version, kind, wanted), ())
    return answer


@router.get("/named", responses=NOT_FOUND, summary="The passage with an id, or those with a name in their id or title")
async def map_named(
    served: Now,
    here: Here,
    name: Annotated[str, Query(min_length=1, max_length=MAX_ID, description="An id, or words.")],
) -> schemas.MapTextsAnswer:
    """Passages by name."""
    lookups = served.lookups
    answer: schemas.MapTextsAnswer = await here.graph.ask(lambda: lookups.map.named(lookups.version, name), ())
    return answer
