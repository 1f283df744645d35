"""The pages' files, and JSON that goes into a page."""

from __future__ import annotations

from gnnretrieval.serve.settings import STATIC


def read_static(name: str) -> str:
    """The text of one of the pages' files."""
    return (STATIC / name).read_text(encoding="utf-8")


def in_script(json_text: str) -> str:
    """JSON that cannot end its script element."""
    return json_text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
