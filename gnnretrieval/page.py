"""One page with plots and tables that opens offline: plotly's script is in it, and nothing is loaded.

Its content security policy forbids every request, texts are escaped, and it follows the reader's light or dark scheme.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from gnnretrieval.errors import GnnRetrievalError

_TEMPLATE = Path(__file__).with_name("page.html")


class Plot(NamedTuple):
    """A plot.

    Attributes:
        name: Its place in the page.
        title: What it shows.
        meaning: How to read it, in words.
        figure: ``data`` and ``layout`` for plotly, as JSON values.
    """

    name: str
    title: str
    meaning: str
    figure: dict[str, Any]


def page_of(title: str, heading: str, summary: str, plots: Sequence[Plot], above: str = "", below: str = "") -> str:
    """The page as text, of about 5 MB.

    Args:
        title: What stands in the window's title.
        heading: What stands above all.
        summary: A line below it.
        plots: The plots, which the page gives the colours of its scheme.
        above: HTML between the summary and the plots, such as :func:`warnings_list` and :func:`tiles`.
        below: HTML behind the plots, such as each :func:`table`.
    """
    from plotly.offline import get_plotlyjs

    data = json.dumps({plot.name: plot.figure for plot in plots})
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(title),
        heading=escape(heading),
        summary=escape(summary),
        above=above,
        plots="".join(
            f"<figure><figcaption><h2>{escape(plot.title)}</h2><p>{escape(plot.meaning)}</p></figcaption>"
            f'<div class="plot" id="plot-{plot.name}" role="img" aria-label="{escape(plot.title)}"></div></figure>'
            for plot in plots
        ),
        below=below,
        plotly=get_plotlyjs(),
        data=data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),  # cannot end its element
    )


def write_page(page: str, path: str | Path) -> None:
    """Write a page.

    Raises:
        GnnRetrievalError: no file can be written there.
    """
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise GnnRetrievalError(f"{path}: the page cannot be written here ({error.strerror}).") from None


def require_page_place(path: Path) -> None:
    """Refuse a place where no page can be written, or a plotly that is not installed, before any work.

    Raises:
        GnnRetrievalError: it is a directory, its directory is missing, or there is no plotly.
    """
    if path.is_dir():
        raise GnnRetrievalError(f"{path}: this is a directory. Name a file for the page.")
    if not path.absolute().parent.is_dir():
        raise GnnRetrievalError(f"{path}: there is no directory {path.absolute().parent}. Make it, or name another.")
    if find_spec("plotly") is None:
        raise GnnRetrievalError("A page wants plotly, which is not installed: pip install plotly.")


def figure_of(traces: list[Any], **layout: Any) -> dict[str, Any]:
    """Plotly's ``data`` and ``layout`` of traces, without its colours."""
    import plotly.graph_objects as go

    figure = go.Figure(traces, layout={"template": "none", **layout})
    values: dict[str, Any] = json.loads(figure.to_json())
    return {"data": values["data"], "layout": values["layout"]}


def escape(text: object) -> str:
    """A text as it stands in HTML."""
    return html.escape(str(text))


def warnings_list(warnings: Sequence[str]) -> str:
    """Warnings, or a line that there is none."""
    if not warnings:
        return '<p class="fine">No warnings.</p>'
    return '<ul class="warnings">' + "".join(f"<li>{escape(warning)}</li>" for warning in warnings) + "</ul>"


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Figures that are seen first, each with what it is."""
    shown = (f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in values)
    return f'<div class="tiles">{"".join(shown)}</div>'


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int, meaning: str = "") -> str:
    """A table whose first ``numbers`` columns are numbers; a line instead where there is no row.

    Args:
        title: What it shows.
        head: Names of the columns.
        rows: Texts of the cells.
        numbers: How many columns are numbers.
        meaning: How to read it, in words.
    """
    said = f"<p>{escape(meaning)}</p>" if meaning else ""
    if not rows:
        return f"<section><h2>{escape(title)}</h2><p>None.</p></section>"

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if place < numbers else ''}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<section><h2>{escape(title)}</h2>{said}<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def short(text: str, width: int = 240) -> str:
    """A text on one line, cut to ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
