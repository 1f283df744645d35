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
from gnnretrieval.cli.show import short
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
@json_option
def inspect(store: Path, as_json: bool) -> None:
    """Degrees, recall ceiling, scores, sizes of GRAPH, and what to change.

    \b
    Example: gnnretrieval graph inspect work/graph
    """
    from gnnretrieval.graph.inspect import format_graph, inspect_graph
    from gnnretrieval.graph.store import open_graph

    figures = inspect_graph(open_graph(store))
    if as_json:
        echo_json(figures)
    else:
        click.echo(format_graph(figures))


@graph.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.argument("node")
@click.option("--query", "is_query", is_flag=True, help="NODE is a query's id (default: a passage's).")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Neighbours to show.")
@json_option
def neighbors(store: Path, node: str, is_query: bool, most: int, as_json: bool) -> None:
    """Who is joined to the passage (or query) called NODE, with scores; * marks a labelled pair.

    \b
    Example: gnnretrieval graph neighbors graphs/docstrings/graph scipy.linalg.solve
    """
    from gnnretrieval.graph.neighborhood import passages_of_query, queries_of_passage
    from gnnretrieval.graph.store import open_graph

    opened = open_graph(store)
    with opened.texts() as texts:
        if not is_query and not texts.rows_of_passages([node]) and node in texts.query_ids():
            raise click.UsageError(f"{node!r} is a query: add --query.")
    center, found = (passages_of_query if is_query else queries_of_passage)(opened, node)
    if as_json:
        echo_json({"node": center._asdict(), "neighbors": [neighbor._asdict() for neighbor in found[:most]]})
        return
    click.echo(f"{node}: {len(found):,} {'passages' if is_query else 'queries'}")
    for neighbor in found[:most]:
        mark = "*" if neighbor.labelled else " "
        click.echo(f"{mark} {neighbor.score:.3f}  rank {neighbor.rank:>2}  {neighbor.id}  {short(neighbor.text, 90)}")
