"""The pages and their files; they hold nothing of the index."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse

from gnnretrieval.serve.map_page import served_page
from gnnretrieval.serve.settings import STATIC

_REVALIDATED = {"cache-control": "no-cache"}
_PAGE: dict[str, Any] = {"include_in_schema": False, "response_class": FileResponse}

_MAP = served_page()

router = APIRouter()


@router.get("/", **_PAGE)
async def explorer() -> FileResponse:
    """The explorer."""
    return FileResponse(STATIC / "explorer.html", headers=_REVALIDATED)


@router.get("/map", include_in_schema=False, response_class=HTMLResponse)
async def map_page() -> HTMLResponse:
    """The map."""
    return HTMLResponse(_MAP, headers=_REVALIDATED)


@router.get("/docs", **_PAGE)
async def docs() -> FileResponse:
    """The description of the API, for people."""
    return FileResponse(STATIC / "docs.html", headers=_REVALIDATED)
