"""Rankings of a question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import SystemRandom
from typing import Annotated

from fastapi import APIRouter, Query

from gnnretrieval.encoders.reader import Reader
from gnnretrieval.feedback.exploration import fair_pairs
from gnnretrieval.index.answering import Answer, read_hits
from gnnretrieval.index.comparison import MovedHit
from gnnretrieval.index.search import Hit
from gnnretrieval.index.what_if import Change, WhatIf
from gnnretrieval.serve import schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.routes.dependencies import NOT_FOUND, Here, Now, milliseconds_since

router = APIRouter()
_CHANCE = SystemRandom()  # workers that were forked must not draw alike


@router.post("/search", responses=NOT_FOUND, summary="Ranked passages for a question")
async def search(request: schemas.SearchRequest, served: Now, here: Here) -> schemas.SearchAnswer:
    """Rank by the index's system, or by the dual-encoder alone; some searches explore."""
    begun, retriever = time.perf_counter(), served.retriever
    system = request.system or retriever.system
    if system != retriever.system and not (system == "dual-encoder" and retriever.has_graph):
        raise Refusal(404, "no_such_system", f"This server has {retriever.system}, and no {system}.")
    hits: list[Hit] = await here.questions.ask((retriever, "search_all", request.k, system), request.question)
    explored = _CHANCE.random() < here.settings.explore
    if explored:
        hits = [hit._replace(rank=rank) for rank, hit in enumerate(fair_pairs(hits, _CHANCE), 1)]
    return schemas.SearchAnswer(
        version=served.version,
        question=request.question,
        system=system,
        milliseconds=milliseconds_since(begun),
        explored=explored,
        hits=[schemas.HitOut.model_validate(hit._asdict()) for hit in hits],
    )


@router.get("/search", responses=NOT_FOUND, summary="The same, with the question in the address")
async def search_by_address(
    parameters: Annotated[schemas.SearchParameters, Query()], served: Now, here: Here
) -> schemas.SearchAnswer:
    """As :func:`search`."""
    return await search(parameters, served, here)


@router.post("/compare", responses=NOT_FOUND, summary="Both encoders' rankings, and what moved")
async def compare(request: schemas.CompareRequest, served: Now, here: Here) -> schemas.CompareAnswer:
    """Rank by both encoders."""
    begun = time.perf_counter()
    served.lookups.require_graph()
    compared = await here.questions.ask((served.retriever, "compare_all", request.k), request.question)
    return schemas.CompareAnswer(
        version=served.version,
        question=request.question,
        milliseconds=milliseconds_since(begun),
        depth=compared.depth,
        dual_encoder=[_moved(hit) for hit in compared.dual_encoder],
        gnn_encoder=[_moved(hit) for hit in compared.gnn_encoder],
        relevant=served.lookups.example_passages(request.question) if compared.relevant is None else compared.relevant,
        in_graph=compared.relevant is not None,
        share_below=compared.share_below,
        unsure=compared.is_unsure,
    )


@router.post("/what-if", responses=NOT_FOUND, summary="The ranking after a change of the graph; nothing is saved")
async def what_if(request: schemas.WhatIfRequest, served: Now, here: Here) -> schemas.WhatIfAnswer:
    """Encode and search in one thread, and compute the touched passages in the other."""
    begun = time.perf_counter()
    served.lookups.require_graph()
    change = Change(request.passage, tuple(request.without), tuple(request.asked), request.scale)
    question = await here.questions.ask((served.retriever, "asked_all"), (request.question, change))
    changed: WhatIf = await here.graph.ask(served.lookups.what_if, (question, change, request.k))
    return schemas.WhatIfAnswer(
        version=served.version,
        question=request.question,
        milliseconds=milliseconds_since(begun),
        depth=changed.depth,
        before=[_moved(hit) for hit in changed.before],
        after=[_moved(hit) for hit in changed.after],
        touched=[schemas.TouchedOut.model_validate(passage._asdict()) for passage in changed.touched],
    )


@router.post(
    "/answer",
    responses={404: {"model": schemas.ErrorAnswer, "description": "There is no answer, or the server has no reader."}},
    summary="The answer in the best passages; only with --reader",
)
async def answer(request: schemas.AnswerRequest, served: Now, here: Here) -> schemas.ReaderAnswer:
    """Search as :func:`search`, and read the passages in the reader's thread."""
    begun, retriever = time.perf_counter(), served.retriever
    if here.answers is None:
        raise Refusal(404, "no_reader", "This server has no reader: start it with --reader NAME.")
    reader, thread = here.answers
    search_job = (retriever, "search_all", reader.settings.passages, retriever.system)
    hits: list[Hit] = await here.questions.ask(search_job, request.question)
    best: Answer | None = await thread.ask(_read, (reader, request.question, hits))
    if best is None:
        why = "None of the best passages has a text to find it in." if hits else "No passage was found."
        raise Refusal(404, "no_answer", why)
    passage = hits[best.rank - 1]
    return schemas.ReaderAnswer(
        version=served.version,
        question=request.question,
        milliseconds=milliseconds_since(begun),
        title=passage.title,
        text=passage.text,
        passages=len(hits),
        **best._asdict(),
    )


def _read(reader: Reader, question: str, hits: Sequence[Hit]) -> Answer | None:
    return read_hits(reader, question, hits).answer(reader.settings.weight)


def _moved(moved: MovedHit) -> schemas.MovedOut:
    matched = None if moved.matched is None else moved.matched.text
    return schemas.MovedOut.model_validate({**moved.hit._asdict(), "elsewhere": moved.elsewhere, "matched": matched})
