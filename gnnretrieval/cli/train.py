"""``gnnretrieval train`` and ``gnnretrieval embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import PATH, device_option, out_option, overwrite_option, verify_option
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.progress import say
from gnnretrieval.training.gnn.settings import TrainSettings


@click.command()
@click.argument("graph", type=PATH)
@out_option
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--features", type=PATH, help="Features, if they moved since the graph was built.")
@click.option(
    "--examples", type=PATH, multiple=True, help="Denoised positives and negatives (mine denoise); may be repeated."
)
@click.option(
    "--start",
    type=PATH,
    help="GNN-encoder to go on from, such as for --mode joint; its dual-encoder may be another, of the same width.",
)
@click.option("--dry-run", is_flag=True, help="Say steps, time and memory, from a few steps, and make nothing.")
@settings_options(TrainSettings)
@device_option
@overwrite_option
def train(
    graph: Path,
    out: Path,
    data: Path | None,
    features: Path | None,
    examples: tuple[Path, ...],
    start: Path | None,
    dry_run: bool,
    device: str,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Train a GNN-encoder over GRAPH; how much of it is used is chosen on dev.

    By default a linear head and messages along the graph's edges are climbed to from the dual-encoder, in seconds to
    minutes. --layer gat, or any setting of it, is the paper's graph attention with masked graph training; with --mode
    joint the dual-encoder learns with it, on one process or several (torchrun --nproc-per-node=4 -m gnnretrieval
    train …). Interrupted, the same command goes on and ends as if it had not been.

    \b
    Example: gnnretrieval train work/graph --out work/model
    Example: gnnretrieval train work/graph --out work/gat --layer gat
    Example: gnnretrieval train work/graph --out work/joint --mode joint --start work/gat
    """
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.mining.examples import open_examples
    from gnnretrieval.training.gnn.choice import what_was_kept
    from gnnretrieval.training.gnn.model import open_model
    from gnnretrieval.training.gnn.train import train_gnn
    from gnnretrieval.training.ranks import started_ranks

    of_gat = {"layer": "gat"} if examples or start is not None else {}
    parsed = TrainSettings.parse(of_gat | settings_from(TrainSettings, settings))
    store = open_graph(graph)
    dataset = store.dataset(data)
    opened = store.features(features)
    given: dict[str, Any] = {
        "examples": [open_examples(path) for path in examples],
        "start": None if start is None else open_model(start),
        "device": device,
    }
    if dry_run:
        from gnnretrieval.training.gnn.dry_run import dry_run_lines, rehearse

        click.echo("\n".join(dry_run_lines(rehearse(store, dataset, opened, parsed, **given), parsed)))
        return
    with started_ranks(device) as ranks:
        if not ranks.first and ranks.agree(None) is None:
            return  # it was made before
        calling = ranks.calling("train")
        made = train_gnn(store, dataset, opened, parsed, out, ranks=calling, overwrite=overwrite, say=say, **given)
        if not ranks.first:
            return
        if ranks.count > 1 and not calling.called:
            ranks.agree(None)
    chosen, before = made.meta["dev"]["chosen"], made.meta["dev"]["dual_encoder"]["RR@10"]
    click.echo(
        f"{out}: dev RR@10 {100 * chosen['RR@10']:.1f}, dual-encoder {100 * before:.1f} "
        f"({made.meta['dev']['queries']:,} queries; {what_was_kept(made.meta['dev'])})"
    )


@click.command()
@click.argument("model", type=PATH)
@out_option
@click.option("--graph", type=PATH, help="Graph to embed over (default: the one the model was trained over).")
@click.option("--features", type=PATH, help="By the dual-encoder that was trained with MODEL (--mode joint).")
@click.option("--changed", is_flag=True, help="Bring the embeddings at --out up to a graph that was added to.")
@click.option("--memory", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Working memory in GiB.")
@verify_option
@device_option
@overwrite_option
def embed(
    model: Path,
    out: Path,
    graph: Path | None,
    features: Path | None,
    changed: bool,
    memory: float,
    verify: bool,
    device: str,
    overwrite: bool,
) -> None:
    """Compute the query-interactive embedding of every passage with MODEL, over the full graph.

    \b
    Example: gnnretrieval embed work/model --out work/embeddings
    Example: gnnretrieval embed work/model --out work/embeddings --changed
    """
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.storage.verifying import require_as_made
    from gnnretrieval.training.gnn.embeddings import embed_passages, update_embeddings
    from gnnretrieval.training.gnn.model import open_model

    opened = open_model(model)
    place = graph or opened.made_from("graph")
    if verify:
        require_as_made(*(path for path in (model, place, features) if path is not None))
    store = open_graph(place)
    budget = int(memory * 2**30)
    if changed:
        made = update_embeddings(opened, store, out, device=device, memory=budget, say=say)
    else:
        its = None if features is None else open_features(features)
        common: dict[str, Any] = {"device": device, "memory": budget, "overwrite": overwrite, "say": say}
        made = embed_passages(opened, store, out, features=its, **common)
    click.echo(f"{out}: {made.meta['num_passages']:,} passages, {made.meta['dimension']} dimensions")
