"""``gnnretrieval graph export``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH, beside
from gnnretrieval.cli.output import echo
from gnnretrieval.errors import counted


@click.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.option(
    "--out", type=PATH, help="File to write: .parquet, .csv or .tsv (.gz).  [default: edges.tsv beside the graph]"
)
@click.option("--k", type=click.IntRange(1), help="Only the first passages of each query.  [default: all]")
@click.option("--split", help="Only the queries of this split.  [default: all]")
def export(store: Path, out: Path | None, k: int | None, split: str | None) -> None:
    """Write the edges of GRAPH, one per row: ids, rows, rank, score, and whether labelled and whether retrieved.

    A rank is the place in its query's list, in the order of the ranking that the graph is made from (--edges); the
    score is always the dual-encoder's. A passage that only its label joins to a query is last, and not retrieved.

    \b
    Example: gnnretrieval graph export work/graph --out work/edges.parquet
    """
    from gnnretrieval.graph.interchange import write_edges
    from gnnretrieval.graph.store import open_graph

    out = out or beside(store, "edges.tsv")
    count = write_edges(open_graph(store).view(k=k, split=split), out)
    echo(f"{out}: {counted(count, 'edge')}")
