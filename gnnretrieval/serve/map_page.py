"""The page of a map: what the server shows at /map, and the same as one HTML file that opens offline."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.maps.passage_map import PassageMap
from gnnretrieval.maps.points import Points, figures_of, points_of
from gnnretrieval.pages.html import inputs_of, write_page
from gnnretrieval.serve.static_files import in_script, read_static
from gnnretrieval.storage.provenance import sha256_of_json

WORDS = 300  # characters of a text that a page shows

_SKELETON = "map.html"
_STYLES = ("style.css", "map.css")
_SCRIPTS = ("elements.js", "map-libraries.js", "map_source.js", "map_points.js", "map.js")
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_TOKEN = """<form class="token card" id="token-form" hidden>
    <label for="token">The server's token</label>
    <input id="token" type="password" autocomplete="off" spellcheck="false" required>
    <button type="submit">Use it</button>
  </form>"""


def served_page() -> str:
    """The page that asks the server for the map; it holds nothing of the index."""
    styles = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in _STYLES)
    scripts = "\n".join(f'<script src="static/{name}"></script>' for name in ("asking.js", *_SCRIPTS))
    brand = '<a class="brand" href="./">gnnretrieval</a><span class="soft">the map</span>'
    return _page(head=styles, brand=brand, token=_TOKEN, data="", scripts=scripts)


def write_map_file(shown: PassageMap, path: str | Path, *, most: int, most_texts: int) -> None:
    """Write a map as one HTML file, unless it is there and was made from the same map by the same page.

    Its content security policy forbids every request.

    Args:
        shown: The map.
        path: The file to write.
        most: Passages to draw, and questions; drawn at random if there are more.
        most_texts: Passages with id, title and first words in the file, those that moved most; and questions.

    Raises:
        ArtifactError: The map is damaged, or its embeddings are gone or changed.
        GnnRetrievalError: The file cannot be written.
    """
    style, scripts = "\n".join(map(read_static, _STYLES)), [read_static(name) for name in _SCRIPTS]
    made = {
        "map": shown.hash,
        "texts of": shown.meta["inputs"],
        "most": most,
        "texts": most_texts,
        "page": [read_static(_SKELETON), style, *scripts],
    }
    if inputs_of(Path(path)) == (inputs := sha256_of_json(made)):
        return
    points = points_of(shown, most)
    with shown.texts() as texts:
        data = {
            "figures": figures_of(shown, points),
            "points": b64encode(points.to_bytes()).decode(),
            "passages": passage_texts(texts, _moved_most(points, most_texts)),
            "questions": question_texts(texts, points.question_rows[:most_texts].tolist()),
        }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f'<meta name="inputs" content="{inputs}">',
        f"<style>\n{style}\n</style>",
    ]
    page = _page(
        head="\n".join(head),
        brand='<span class="brand">gnnretrieval: the map</span>',
        token="",
        data=f'<script type="application/json" id="data">{in_script(text)}</script>',
        scripts="\n".join(f"<script>\n{script}</script>" for script in scripts),
    )
    write_page(page, path)


def passage_texts(texts: TextStore, rows: Iterable[int]) -> list[dict[str, Any]]:
    """Row, id, title and first words of passages."""
    passages = (texts.passage(row) for row in rows)
    return [
        {"row": passage.row, "id": passage.id, "title": passage.title, "text": _cut(passage.text)}
        for passage in passages
    ]


def question_texts(texts: TextStore, rows: Iterable[int]) -> list[dict[str, Any]]:
    """Row, id and text of training questions; their titles are empty."""
    queries = (texts.query(row) for row in rows)
    return [{"row": query.row, "id": query.id, "title": "", "text": _cut(query.text)} for query in queries]


def _moved_most(points: Points, most: int) -> list[int]:
    rows: list[int] = points.rows[np.argsort(-points.displacement, kind="stable")[:most]].tolist()
    return rows


def _cut(text: str) -> str:
    return text if len(text) <= WORDS else text[: WORDS - 1] + "…"


def _page(**parts: str) -> str:
    return Template(read_static(_SKELETON)).substitute(parts)
