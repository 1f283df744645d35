"""HTML pages that open offline, with one skeleton and one stylesheet.

A page is made of :class:`Html`. Any other text is escaped when it is added, so that no text of a dataset can become
markup. Pages run no script and load nothing; their content security policy forbids both. They follow the reader's light
or dark scheme, and work on narrow screens, on paper, and with screen readers. :mod:`gnnretrieval.pages.plots` draws
their plots.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple
from urllib.parse import quote

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.storage.artifacts import whole_file

_SKELETON = Path(__file__).with_name("page.html")
_STYLE = Path(__file__).with_name("page.css")
_LONG = 60  # characters after which a cell needs the width of running text


class Html(str):
    """Text that is HTML already."""


class Card(Html):
    """A part of a page with a heading.

    Attributes:
        heading: The heading.
        body: What is below the heading.
    """

    heading: str
    body: Html

    def __new__(cls, heading: str, body: Html) -> Card:
        """Make the part from its heading and what is below it."""
        card = super().__new__(cls, element("section", element("h2", heading), body, id=_anchor(heading)))
        card.heading, card.body = heading, body
        return card

    def folded(self) -> Html:
        """The same part, of which a reader sees the heading until it is opened."""
        shown = element("summary", element("h2", self.heading))
        return element("details", shown, self.body, class_="card", id=_anchor(self.heading))


class Figure(NamedTuple):
    """A plot on a page.

    Attributes:
        title: What it shows.
        meaning: How to read it, in words.
        plot: The drawing, made by :mod:`gnnretrieval.pages.plots`.
        source: The line that names its files, made by :func:`source`; None: the whole page has one source.
    """

    title: str
    meaning: str
    plot: Html
    source: Html | None = None


def escape(value: object) -> Html:
    """``value`` escaped for a page or an attribute; :class:`Html` is returned unchanged."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], between: object = "") -> Html:
    """The parts joined, each escaped."""
    return Html(escape(between).join(escape(part) for part in parts))


def element(tag: str, *content: object, **attributes: str) -> Html:
    """An element around its escaped content; ``class_`` becomes ``class``, ``aria_label`` becomes ``aria-label``."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    given = "".join(f' {name}="{escape(value)}"' for name, value in named.items())
    return Html(f"<{tag}{given}>{join(content)}</{tag}>")


def section(title: str, *content: Html) -> Card:
    """A card with a heading, to which links can lead."""
    return Card(title, join(content))


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def paragraph(*content: object) -> Html:
    """A paragraph of a card."""
    return element("p", *content)


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], numbers: Iterable[int] = (), name: str = ""
) -> Html:
    """A table with a heading over each column; the first cell of a row is its heading. Without rows: "None."

    Args:
        head: The column headings.
        rows: The rows, each with one cell per column.
        numbers: Positions of the columns to align as numbers.
        name: The table's name for screen readers.
    """
    aligned = set(numbers)

    def cells(row: Sequence[object], is_head: bool) -> Html:
        made = []
        for place, cell in enumerate(row):
            tag, scope = ("th", ' scope="col"') if is_head else ("th", ' scope="row"') if not place else ("td", "")
            look = "number" if place in aligned else "text" if len(str(cell)) > _LONG else ""
            given = f' class="{look}"{scope}' if look else scope
            made.append(Html(f"<{tag}{given}>{escape(cell)}</{tag}>"))
        return element("tr", *made)

    body = [cells(row, False) for row in rows]
    if not body:
        return paragraph("None.")
    label = f' aria-label="{escape(name)}"' if name else ""
    inner = join([element("thead", cells(head, True)), element("tbody", *body)])
    # The keyboard can scroll the table sideways only where it can have the focus.
    return Html(f'<div class="wide" tabindex="0" role="group"{label}><table>{inner}</table></div>')


def figures(shown: Iterable[Figure]) -> Html:
    """Plots, side by side where the page is wide enough."""
    return element("div", *map(_figure, shown), class_="figures")


def _figure(shown: Figure) -> Html:
    said = [element("h3", shown.title), paragraph(shown.meaning), *([shown.source] if shown.source else [])]
    return element("figure", element("figcaption", *said), shown.plot)


def tiles(values: Iterable[tuple[str, str]]) -> Html:
    """The main figures in large type, from pairs of a value and its name."""
    return element(
        "dl", *(element("div", element("dt", what), element("dd", value)) for value, what in values), class_="tiles"
    )


def facts(values: Mapping[str, object]) -> Html:
    """Names and values, one line each."""
    return element(
        "dl", *(join([element("dt", name), element("dd", value)]) for name, value in values.items()), class_="facts"
    )


def warnings(sentences: Sequence[str]) -> Html:
    """The sentences as highlighted warnings; "No warnings." where there are none."""
    if not sentences:
        return element("p", "No warnings.", class_="soft")
    return element("ul", *(element("li", sentence) for sentence in sentences), class_="warnings")


def folded(summary: object, *content: Html, is_open: bool = False) -> Html:
    """Content that is folded under its summary until the reader opens it."""
    return Html(f"<details{' open' if is_open else ''}>{join([element('summary', summary), *content])}</details>")


def source(*files: str, linked: bool = True) -> Html:
    """The line "From …" that names source files by their paths from the page; :class:`Html` is not changed."""
    return element("p", "From ", join((_file(file, linked) for file in files), ", "), class_="source")


def _file(file: str, linked: bool) -> Html:
    if isinstance(file, Html):
        return file
    name = element("code", file)
    return element("a", name, href=quote(file)) if linked else name


def short(text: str, width: int = 240) -> str:
    """The text as one line of at most ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def page(title: str, summary: object, *content: Html, inputs: str = "") -> str:
    """A whole page.

    Args:
        title: The heading, and the title in the browser.
        summary: The line below the heading.
        content: Parts of the page, made by the functions of this module.
        inputs: Hash of what the page was made from; equal inputs need no new page.
    """
    return Template(_SKELETON.read_text(encoding="utf-8")).substitute(
        title=escape(title),
        summary=escape(summary),
        content=join(content, Html("\n")),
        inputs=escape(inputs),
        style=_STYLE.read_text(encoding="utf-8"),
    )


def inputs_of(path: Path) -> str | None:
    """The hash of the inputs that the page at ``path`` was made from; None: it has none, or there is no page."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        match = re.search(r'<meta name="inputs" content="(\w*)">', file.read(2000))
    return match[1] if match else None


def write_page(text: str, path: str | Path) -> None:
    """Write a page to a file in one step: a reader sees the old page or the new one, never a part.

    Raises:
        GnnRetrievalError: the file cannot be written.
    """
    path = Path(path)
    try:
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GnnRetrievalError(f"{path}: the page cannot be written here ({error.strerror}).") from None


def require_page_place(path: Path) -> None:
    """Check before any work that a page can be written to ``path``.

    Raises:
        GnnRetrievalError: ``path`` is a directory, or its directory is missing.
    """
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the page.")
    if not path.absolute().parent.is_dir():
        raise GnnRetrievalError(f"{path}: there is no directory {path.absolute().parent}. Make it, or choose another.")
