"""The figures of a graph as one page with plots that opens offline: plotly's script is in it, and nothing is loaded."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.inspection_plots import plots_of
from gnnretrieval.graph.inspection_text import in_bytes

_TEMPLATE = Path(__file__).with_name("inspection_page.html")


def write_page(figures: Mapping[str, Any], path: str | Path, name: str) -> None:
    """Write the figures of :func:`~gnnretrieval.graph.inspect.inspect_graph` as an HTML page of about 5 MB.

    Its content security policy forbids every request, texts are escaped, and it follows the reader's light or dark
    scheme.

    Args:
        figures: The figures.
        path: The file to write.
        name: What to call the graph in the title.

    Raises:
        GnnRetrievalError: no file can be written there.
    """
    page = page_of(figures, name)
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


def page_of(figures: Mapping[str, Any], name: str) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    plots = plots_of(figures)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=_escape(name),
        summary=_escape(
            f"{figures['passages']:,} passages, {figures['queries']:,} queries, k = {figures['k']}: "
            f"{figures['edges']:,} edges. {figures['dimension']} dimensions by {figures['encoder']}; edge features: "
            f"{', '.join(figures['edge_features']) or 'none'}."
        ),
        warnings=_warnings(figures["warnings"]),
        tiles="".join(
            f"<div><b>{_escape(value)}</b><span>{_escape(what)}</span></div>" for value, what in _tiles(figures)
        ),
        plots="".join(
            f"<figure><figcaption><h2>{_escape(plot.title)}</h2><p>{_escape(plot.meaning)}</p></figcaption>"
            f'<div class="plot" id="plot-{plot.name}" role="img" aria-label="{_escape(plot.title)}"></div></figure>'
            for plot in plots
        ),
        tables="".join(_tables(figures)),
        plotly=get_plotlyjs(),
        data=_script_safe(json.dumps({plot.name: plot.figure for plot in plots})),
    )


def _escape(text: object) -> str:
    return html.escape(str(text))


def _script_safe(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _warnings(warnings: list[str]) -> str:
    if not warnings:
        return '<p class="fine">No warnings.</p>'
    return '<ul class="warnings">' + "".join(f"<li>{_escape(warning)}</li>" for warning in warnings) + "</ul>"


def _tiles(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    degrees, recall = figures["queries_per_passage"], figures["labelled_passage_among_neighbours"]
    if recall:
        yield f"{recall[str(figures['k'])]:.1%}", f"of queries reach their passage within k = {figures['k']}"
    if figures["agreement"] is not None:
        yield f"{figures['agreement']['paraphrase']:.2f}", "paraphrase: 0 as any two questions, 1 the same"
    yield f"{degrees['mean']:.1f}", f"queries a passage; most {degrees['max']:,}"
    yield f"{degrees['share_never_found']:.1%}", "of passages found by no query"
    yield f"{figures['near_duplicates']['queries']['share']:.1%}", "of queries have a near-duplicate"
    yield f"{figures['near_duplicates']['passages']['share']:.1%}", "of found passages have a near-duplicate"
    yield in_bytes(figures["memory"]["training_batch"]), "to train against the batch's passages"
    yield in_bytes(figures["memory"]["training_corpus"]), "to train against all passages"
    yield in_bytes(figures["memory"]["embedding"]), "to embed every passage"


def _tables(figures: Mapping[str, Any]) -> Iterator[str]:
    found = [
        (f"{row['queries']:,}", row["id"], row["title"] if row["title"] != row["id"] else "", _short(row["text"]))
        for row in figures["most_found"]
    ]
    yield _table("Most-found passages", ("queries", "id", "title", "text"), found, numbers=1)
    near = figures["near_duplicates"]
    for what in ("queries", "passages"):
        rows = [
            (f"{example['cosine']:.3f}", *(f"{_short(side['text'])}" for side in example["pair"]))
            for example in near[what]["examples"]
        ]
        title = f"Near-duplicate {what}: {near[what]['pairs']:,} pairs of cosine {near['threshold']:g} or more"
        yield _table(title, ("cosine", "one", "other"), rows, numbers=1)
    if figures["agreement"] is not None:
        disagreeing = [
            (
                f"{row['agreement']:.3f}",
                str(row["questions"]),
                row["id"],
                *(_short(side["text"]) for side in row["apart"]),
            )
            for row in figures["agreement"]["disagreeing"]
        ]
        named = ("agreement", "questions", "passage", "one question", "another")
        yield _table("Passages whose questions disagree most", named, disagreeing, numbers=2)
    if figures["overlap"]["splits"]:
        splits = [
            (
                f"{split['queries']:,}",
                f"{split['same_id']:,}",
                f"{split['same_text']:,}",
                f"{split['relevant_passages']:,}",
                f"{split['share_with_training_questions']:.1%}",
                f"{split['share_never_found']:.1%}",
                name,
            )
            for name, split in figures["overlap"]["splits"].items()
        ]
        head = (
            "queries",
            "id in graph",
            "text in graph",
            "relevant passages",
            "with training questions",
            "never found",
        )
        yield _table("Other splits and the graph", (*head, "split"), splits, numbers=6)
    else:
        why = figures["overlap"]["why"] or "the dataset has no other split"
        yield f"<section><h2>Other splits and the graph</h2><p>Not compared: {_escape(why)}.</p></section>"


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: int) -> str:
    """A table whose first ``numbers`` columns are numbers; a line instead where there is no row."""
    if not rows:
        return f"<section><h2>{_escape(title)}</h2><p>None.</p></section>"

    def cells(tag: str, values: tuple[str, ...]) -> str:
        return "".join(
            f"<{tag}{' class=number' if place < numbers else ''}>{_escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<section><h2>{_escape(title)}</h2><div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _short(text: str, width: int = 240) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
