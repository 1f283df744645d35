"""The explorer's view of one node as an HTML file that opens offline."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.serve.static_files import in_script, read_static


def write_view(described: Mapping[str, Any], path: str | Path) -> None:
    """Write a node of :func:`gnnretrieval.index.neighborhood.describe` as an HTML page of some tens of kilobytes.

    Its content security policy forbids every request, and it follows the reader's light or dark scheme.

    Args:
        described: The node, its neighbours and theirs.
        path: The file to write.

    Raises:
        GnnRetrievalError: The file cannot be written.
    """
    page = view_page(described)
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise GnnRetrievalError(f"{path}: the page cannot be written here ({error.strerror}).") from None


def view_page(described: Mapping[str, Any]) -> str:
    """The HTML page as text."""
    return Template(read_static("view.html")).substitute(
        name=html.escape(f"{described['node']['id']}: its neighbourhood"),
        style=read_static("style.css"),
        script=read_static("elements.js") + read_static("neighborhood.js"),
        data=in_script(json.dumps(described, ensure_ascii=True)),
    )
