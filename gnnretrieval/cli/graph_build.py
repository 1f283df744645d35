"""``gnnretrieval graph build`` and ``gnnretrieval graph add``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import (
    PATH,
    SHARDS,
    beside,
    dataset_options,
    device_option,
    dry_run_option,
    out_beside_option,
    overwrite_option,
    shard_of,
    shard_options,
    sharding_of,
)
from gnnretrieval.cli.output import echo, echo_next, echo_shard, quoted
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.errors import counted
from gnnretrieval.graph.settings import GraphSettings

if TYPE_CHECKING:
    from gnnretrieval.graph.store import Graph

_SECTIONS = {
    "Edge features": (
        *("edge_features", "edge_vectors", "edge_file", "cross_encoder", "pair_tokens"),
        *("self_loops", "edge_form", "edge_dimensions"),
    ),
    "In shards": SHARDS,
}
_OF_PAIRS = ("cross_encoder", "pair_tokens")  # what a cross-encoder reads pairs by


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("dataset", type=PATH)
@click.argument("features", type=PATH)
@out_beside_option
@dataset_options
@settings_options(GraphSettings)
@click.option("--run", "run_file", type=PATH, help="TREC run with the passages to join queries to (sets --edges run).")
@click.option("--edge-file", type=PATH, help=".npy with edge vectors (n, k, width) (sets --edge-vectors file).")
@device_option
@shard_options
@dry_run_option
@overwrite_option
def build(
    dataset: Path,
    features: Path,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    run_file: Path | None,
    edge_file: Path | None,
    device: str,
    dry_run: bool,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Join each training query of DATASET to its top-k passages by FEATURES.

    After an interruption, the same command continues.

    \b
    Example: gnnretrieval graph build my-data work/features
    Example: gnnretrieval graph build my-data work/features --run bm25.run --out work/graph-bm25
    Example: gnnretrieval graph build my-data work/features --shards 64 --dry-run
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.build import build_graph, search_shard

    out = out or beside(features, "graph")
    shard, storage, sharding = shard_of(settings), settings["storage"], sharding_of(settings)
    given = settings_from(GraphSettings, settings)
    if run_file is not None:
        given.setdefault("edges", "run")
    if edge_file is not None:
        given.setdefault("edge_vectors", "file")
    parsed = GraphSettings.parse(given)
    if "probes" in given and parsed.search == "exact":
        raise click.UsageError("--probes goes with --search faiss.")
    if not parsed.reads_pairs and (unread := next((name for name in _OF_PAIRS if name in given), None)):
        raise click.UsageError(
            f"--{unread.replace('_', '-')} goes with --edge-vectors cross-encoder, or the edge feature probability."
        )
    opened = Dataset.open(dataset, qrels, where)
    if dry_run:
        from gnnretrieval.graph.dry_run import forecast_graph
        from gnnretrieval.shards import Sharding

        echo(
            forecast_graph(
                opened, open_features(features), parsed, sharding or Sharding(shards=1), device=device
            ).to_text()
        )
        return
    if shard is not None:
        vectors = open_features(features)
        files = search_shard(opened, vectors, parsed, out, shard, device=device, storage=storage)
        echo_shard(files, shard, storage)
        return
    made = build_graph(
        opened,
        open_features(features),
        parsed,
        out,
        run=run_file,
        edge_file=edge_file,
        device=device,
        sharding=sharding,
        overwrite=overwrite,
    )
    echo(f"{out}: {_size(made)}")
    echo_next(f"gnnretrieval train {quoted(out)}, or first gnnretrieval graph inspect {quoted(out)}")


def _size(made: Graph) -> str:
    edges = counted(made.num_queries * made.k, "edge")
    return f"{counted(made.num_passages, 'passage')}, {counted(made.num_queries, 'query')}, {edges}"


@click.command()
@click.argument("store", metavar="GRAPH", type=PATH)
@click.option("--queries", type=PATH, help="queries.jsonl of new queries, such as a click log's.")
@click.option("--qrels", type=PATH, help=".tsv with judgements of new queries: only judged queries are trained on.")
@click.option("--passages", type=PATH, help="corpus.jsonl of new passages.")
@click.option("--query-vectors", type=PATH, help="Vectors of the new queries (.npy or Parquet), instead of encoding.")
@click.option("--passage-vectors", type=PATH, help="Vectors of the new passages, instead of encoding.")
@click.option("--run", "run_file", type=PATH, help="TREC run on the new queries, if the graph was built from a run.")
@click.option("--split", help="Name of the split of the new queries (default: the split the graph was built from).")
@device_option
def add(
    store: Path,
    queries: Path | None,
    qrels: Path | None,
    passages: Path | None,
    query_vectors: Path | None,
    passage_vectors: Path | None,
    run_file: Path | None,
    split: str | None,
    device: str,
) -> None:
    """Add new queries and passages to GRAPH in one step. Only the parts that change are computed.

    Then update the embeddings and the index: embed --changed, and index build --changed.

    \b
    Example: gnnretrieval graph add work/graph --queries clicks/queries.jsonl --qrels clicks/clicked.tsv
    """
    from gnnretrieval.graph.growth.add import add_to_graph
    from gnnretrieval.graph.growth.additions import read_additions
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.storage.places import settle

    if split is not None and queries is None:
        raise click.UsageError("--split goes with --queries.")
    settle(store, "graph")
    additions = read_additions(
        open_graph(store),
        queries=queries,
        passages=passages,
        qrels=qrels,
        query_vectors=query_vectors,
        passage_vectors=passage_vectors,
        run=run_file,
        split=split,
        device=device,
    )
    if additions is None:
        echo(f"{store}: these were added before, nothing to do")
        return
    made = add_to_graph(store, additions, device=device)
    echo(
        f"{store}: {counted(len(additions.queries), 'query')} and {counted(len(additions.passages), 'passage')} "
        f"added; now {_size(made)}"
    )
    echo_next("gnnretrieval embed MODEL --changed, then gnnretrieval index build EMBEDDINGS --changed")
