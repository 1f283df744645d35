"""``gnnretrieval graph view``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH, beside, explainer_of
from gnnretrieval.progress import say


@click.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.argument("node")
@click.option("--html", type=PATH, help="The page to write; it opens offline.  [default: view.html beside the graph]")
@click.option("--query", "is_query", is_flag=True, help="NODE is a query's id (default: a passage's).")
@click.option("--most", type=click.IntRange(1, 50), default=10, show_default=True, help="Neighbours to draw.")
@click.option("--model", type=PATH, help="GNN-encoder: draw attention as line width, and the passage's gate.")
@click.option("--features", type=PATH, help="Features by the dual-encoder trained with --model (--mode joint).")
def view(
    store: Path, node: str, html: Path | None, is_query: bool, most: int, model: Path | None, features: Path | None
) -> None:
    """Draw the two-hop neighbourhood of a passage (or query) by its id NODE on a page, as the explorer does.

    \b
    Example: gnnretrieval graph view graphs/docstrings/graph scipy.linalg.solve --html solve.html
    Example: gnnretrieval graph view work/graph p7 --model work/model --html p7.html
    """
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index.neighborhood import describe
    from gnnretrieval.pages.html import require_page_place
    from gnnretrieval.serve.view_page import write_view

    html = html or beside(store, "view.html")
    require_page_place(html)
    opened = open_graph(store)
    explainer = explainer_of(opened, model, features)
    write_view(describe(opened, node, is_query, most=most, hops=2, explainer=explainer), html)
    say(f"{html}: the page, {html.stat().st_size / 2**10:.0f} KiB")
