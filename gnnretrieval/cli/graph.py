"""``gnnretrieval graph``: the query-passage graph."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.graph_build import add, build
from gnnretrieval.cli.graph_export import export
from gnnretrieval.cli.graph_view import view
from gnnretrieval.cli.options import PATH, explainer_of, json_option
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.progress import say


@click.group()
def graph() -> None:
    """The query-passage graph: build it, add to it, inspect it, export it."""


for command in (build, add, export, view):
    graph.add_command(command)


@graph.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--most", type=click.IntRange(0), default=5, show_default=True, help="Examples of each kind to show.")
@json_option
@click.option("--html", type=PATH, help="Write the figures as a page with plots that opens offline.")
def inspect(store: Path, data: Path | None, most: int, as_json: bool, html: Path | None) -> None:
    """Report whether GRAPH can help: degrees, recall ceiling, paraphrases, near-duplicates, overlap, sizes, advice.

    \b
    Example: gnnretrieval graph inspect work/graph
    Example: gnnretrieval graph inspect work/graph --html graph.html
    """
    from gnnretrieval.graph.inspection.inspect import inspect_graph
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.pages.html import require_page_place, write_page

    opened = open_graph(store)
    if html is not None:
        require_page_place(html)
    report = inspect_graph(opened, data, most=most)
    if html is not None:
        write_page(report.to_html(), html)
        say(f"{html}: the page")
    if as_json:
        echo_json(report.as_json())
    else:
        echo(report.to_text())
        echo_next(f"gnnretrieval train {quoted(store)}")


@graph.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.argument("node")
@click.option("--query", "is_query", is_flag=True, help="NODE is a query's id (default: a passage's).")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Neighbours to show.")
@click.option(
    "--hops", type=click.IntRange(1, 2), default=1, show_default=True, help="2: also the best three neighbours of each."
)
@click.option("--model", type=PATH, help="GNN-encoder: show the attention of each edge, and the passage's gate.")
@click.option("--features", type=PATH, help="Features by the dual-encoder trained with --model (--mode joint).")
@json_option
def neighbors(
    store: Path,
    node: str,
    is_query: bool,
    most: int,
    hops: int,
    model: Path | None,
    features: Path | None,
    as_json: bool,
) -> None:
    """Show the neighbours of a passage (or query) by its id NODE, with scores; * marks a labelled pair.

    With --model, the questions of a passage are sorted by attention instead of score.

    \b
    Example: gnnretrieval graph neighbors graphs/docstrings/graph scipy.linalg.solve
    Example: gnnretrieval graph neighbors work/graph p7 --hops 2 --model work/model
    """
    from gnnretrieval.cli.show import neighborhood_lines
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index.neighborhood import describe

    opened = open_graph(store)
    explainer = explainer_of(opened, model, features)
    described = describe(opened, node, is_query, most=most, hops=hops, explainer=explainer)
    if as_json:
        echo_json(described)
    else:
        echo("\n".join(neighborhood_lines(described)))
