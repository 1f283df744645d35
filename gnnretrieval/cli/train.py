"""``gnnretrieval train`` and ``gnnretrieval embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import PATH, dataset_of, device_option, out_option, overwrite_option
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.progress import say
from gnnretrieval.training.settings import TrainSettings


@click.command()
@click.argument("graph", type=PATH)
@out_option
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--features", type=PATH, help="Features, if they moved since the graph was built.")
@settings_options(TrainSettings)
@device_option
@overwrite_option
def train(
    graph: Path, out: Path, data: Path | None, features: Path | None, device: str, overwrite: bool, **settings: Any
) -> None:
    """Train a GNN-encoder over GRAPH by masked graph training; the epoch and context scale are chosen on dev.

    Interrupted, the same command goes on and ends as if it had not been.

    \b
    Example: gnnretrieval train work/graph --out work/model
    """
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.training.train import train_gnn

    parsed = TrainSettings.parse(settings_from(TrainSettings, settings))
    store = open_graph(graph)
    dataset = dataset_of(store, data)
    opened = open_features(features or store.made_from("features"))
    made = train_gnn(store, dataset, opened, parsed, out, device=device, overwrite=overwrite, say=say)
    chosen, before = made.meta["dev"]["chosen"], made.meta["dev"]["dual_encoder"]["RR@10"]
    click.echo(
        f"{out}: dev RR@10 {100 * chosen['RR@10']:.1f}, dual-encoder {100 * before:.1f} "
        f"({made.meta['dev']['queries']:,} queries; epoch {chosen['epoch']}, context scale {chosen['context_scale']:g})"
    )


@click.command()
@click.argument("model", type=PATH)
@out_option
@click.option("--graph", type=PATH, help="Graph to embed over (default: the one the model was trained over).")
@click.option("--changed", is_flag=True, help="Bring the embeddings at --out up to a graph that was added to.")
@click.option("--memory", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Working memory in GiB.")
@device_option
@overwrite_option
def embed(
    model: Path, out: Path, graph: Path | None, changed: bool, memory: float, device: str, overwrite: bool
) -> None:
    """Compute the query-interactive embedding of every passage with MODEL, over the full graph.

    \b
    Example: gnnretrieval embed work/model --out work/embeddings
    Example: gnnretrieval embed work/model --out work/embeddings --changed
    """
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.training.embeddings import embed_passages, update_embeddings
    from gnnretrieval.training.model import open_model

    opened = open_model(model)
    store = open_graph(graph or opened.made_from("graph"))
    budget = int(memory * 2**30)
    if changed:
        made = update_embeddings(opened, store, out, device=device, memory=budget, say=say)
    else:
        made = embed_passages(opened, store, out, device=device, memory=budget, overwrite=overwrite, say=say)
    click.echo(f"{out}: {made.meta['num_passages']:,} passages, {made.meta['dimension']} dimensions")
