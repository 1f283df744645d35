"""``gnnretrieval graph``: the query-passage graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import (
    PATH,
    dataset_options,
    device_option,
    echo_json,
    json_option,
    out_option,
    overwrite_option,
)
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.progress import say


@click.group()
def graph() -> None:
    """The query-passage graph: build it, and look into it."""


@graph.command()
@click.argument("dataset", type=PATH)
@click.argument("features", type=PATH)
@out_option
@dataset_options
@settings_options(GraphSettings)
@device_option
@overwrite_option
def build(
    dataset: Path,
    features: Path,
    out: Path,
    qrels: str,
    where: dict[str, str],
    device: str,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Join each training query of DATASET to its top-k passages by FEATURES.

    \b
    Example: gnnretrieval graph build my-data work/features --k 10 --out work/graph
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.build import build_graph

    parsed = GraphSettings.parse(settings_from(GraphSettings, settings))
    opened = Dataset.open(dataset, qrels, where)
    made = build_graph(opened, open_features(features), parsed, out, device=device, overwrite=overwrite, say=say)
    click.echo(
        f"{out}: {made.num_passages:,} passages, {made.num_queries:,} queries, {made.num_queries * made.k:,} edges"
    )


@graph.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--most", type=click.IntRange(0), default=5, show_default=True, help="Examples of each kind to name.")
@json_option
@click.option("--html", type=PATH, help="Write the figures as a page with plots that opens offline.")
def inspect(store: Path, data: Path | None, most: int, as_json: bool, html: Path | None) -> None:
    """Whether GRAPH can help: degrees, recall ceiling, paraphrases, near-duplicates, overlap, sizes, what to change.

    \b
    Example: gnnretrieval graph inspect work/graph
    Example: gnnretrieval graph inspect work/graph --html graph.html
    """
    from gnnretrieval.graph.inspect import inspect_graph
    from gnnretrieval.graph.inspection_page import require_page_place, write_page
    from gnnretrieval.graph.inspection_text import format_graph
    from gnnretrieval.graph.store import open_graph

    opened = open_graph(store)
    if html is not None:
        require_page_place(html)
    figures = inspect_graph(opened, data, most=most)
    if html is not None:
        write_page(figures, html, str(store))
        say(f"{html}: the page, {html.stat().st_size / 2**20:.1f} MiB")
    if as_json:
        echo_json(figures)
    else:
        click.echo(format_graph(figures))


@graph.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.argument("node")
@click.option("--query", "is_query", is_flag=True, help="NODE is a query's id (default: a passage's).")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Neighbours to show.")
@click.option("--hops", type=click.IntRange(1, 2), default=1, show_default=True, help="2: theirs too, the best three.")
@click.option("--model", type=PATH, help="GNN-encoder: show the attention of each edge, and the passage's gate.")
@json_option
def neighbors(store: Path, node: str, is_query: bool, most: int, hops: int, model: Path | None, as_json: bool) -> None:
    """Who is joined to the passage (or query) called NODE, with scores; * marks a labelled pair.

    With --model a passage's questions stand by attention, not by score.

    \b
    Example: gnnretrieval graph neighbors graphs/docstrings/graph scipy.linalg.solve
    Example: gnnretrieval graph neighbors work/graph p7 --hops 2 --model work/model
    """
    from gnnretrieval.cli.show import neighborhood_lines
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index.neighborhood import describe

    opened = open_graph(store)
    explainer = None
    if model is not None:
        from gnnretrieval.index.explain import Explainer
        from gnnretrieval.training.model import open_model

        explainer = Explainer(open_model(model), opened)
    described = describe(opened, node, is_query, most=most, hops=hops, explainer=explainer)
    if as_json:
        echo_json(described)
    else:
        click.echo("\n".join(neighborhood_lines(described)))
