"""Passages, training questions and the graph that joins them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from gnnretrieval.serve import schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.routes.dependencies import NOT_FOUND, Here, NodeId, Now, PathId
from gnnretrieval.serve.settings import MAX_NEIGHBORS

router = APIRouter()


@router.get("/passages/{id:path}", responses=NOT_FOUND, summary="A passage")
async def passage(id: PathId, served: Now, here: Here) -> schemas.PassageOut:
    """The passage with an id."""
    answer: schemas.PassageOut = await here.graph.ask(served.lookups.passage, (id,))
    return answer


@router.get("/queries/{id:path}", responses=NOT_FOUND, summary="A training question")
async def query(id: PathId, served: Now, here: Here) -> schemas.QueryOut:
    """The training question with an id."""
    answer: schemas.QueryOut = await here.graph.ask(served.lookups.query, (id,))
    return answer


@router.get("/graph", responses=NOT_FOUND, summary="The graph's figures")
async def figures(served: Now, here: Here) -> schemas.GraphAnswer:
    """Sizes, degrees and recall."""
    served.lookups.require_graph()
    answer: schemas.GraphAnswer = await here.graph.ask(lambda: served.lookups.graph, ())
    return answer


@router.get("/graph/neighbors", responses=NOT_FOUND, summary="A node, its neighbours by attention, and theirs")
async def neighbors(
    served: Now,
    here: Here,
    id: NodeId,
    kind: Annotated[Literal["passage", "query"], Query(description="Of what the id is.")] = "passage",
    most: Annotated[int, Query(ge=1, le=MAX_NEIGHBORS, description="Neighbours wanted.")] = 10,
) -> schemas.NeighborsAnswer:
    """A node's heaviest neighbours."""
    served.lookups.require_graph()
    answer: schemas.NeighborsAnswer = await here.graph.ask(served.lookups.neighbors, (id, kind == "query", most))
    return answer


@router.get("/update", responses=NOT_FOUND, summary="The nightly update that made the index")
async def update(served: Now, here: Here) -> schemas.UpdateAnswer:
    """When, what the gate measured, and which questions moved most."""
    answer: schemas.UpdateAnswer | None = await here.graph.ask(lambda: served.lookups.update, ())
    if answer is None:
        raise Refusal(404, "no_update", "This server's index was not made by gnnretrieval update.")
    return answer


@router.get("/examples", summary="Questions to try")
async def examples(served: Now, here: Here) -> schemas.ExamplesAnswer:
    """Questions that gained most, or some of the graph's."""
    answer: schemas.ExamplesAnswer = await here.graph.ask(lambda: served.lookups.examples, ())
    return answer
