"""``gnnretrieval train`` and ``gnnretrieval embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import PATH, beside, device_option, out_beside_option, overwrite_option, verify_option
from gnnretrieval.cli.output import echo, echo_next, quoted
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.errors import counted
from gnnretrieval.training.gnn.settings import TrainSettings

_SECTIONS = {
    "Graph layers (--layer gat, gatv2, transformer, sage, mean, lightgcn)": (
        *("heads", "layers", "gate", "gate_start", "dropout", "feature_dropout", "passage_edges", "neighbors"),
        *("context_scales", "dev_window", "transfer_evidence", "start", "examples"),
    ),
    "Their masked graph training": (
        *("mask_ratio", "mask_unit", "candidates", "negatives", "hard_negatives", "distillation", "scale"),
        *("weight_averaging", "identity_decay"),
    ),
    "Steps of graph layers, and of --mode joint": (
        *("epochs", "batch_size", "learning_rate", "warmup", "gradient_clip", "patience"),
    ),
    "The dual-encoder's training (--mode joint)": (
        *("encoder_learning_rate", "encoder_dropout", "gradient_cache", "token_budget", "dev_passages"),
    ),
}


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("graph", type=PATH)
@out_beside_option
@click.option("--data", type=PATH, help="Dataset directory, if it moved since the graph was built.")
@click.option("--features", type=PATH, help="Features, if they moved since the graph was built.")
@click.option(
    "--examples", type=PATH, multiple=True, help="Denoised positives and negatives (mine denoise); may be repeated."
)
@click.option(
    "--start-from",
    "--start",
    "start",
    type=PATH,
    help="GNN-encoder to start from, as for --mode joint; its dual-encoder may differ, but not in width.",
)
@click.option("--dry-run", is_flag=True, help="Estimate steps, time and memory from a few steps, and make nothing.")
@settings_options(TrainSettings)
@device_option
@overwrite_option
def train(
    graph: Path,
    out: Path | None,
    data: Path | None,
    features: Path | None,
    examples: tuple[Path, ...],
    start: Path | None,
    dry_run: bool,
    device: str,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Train a GNN-encoder over GRAPH, and choose on dev how much of it to use.

    The default layer is linear: linear heads and messages along the graph's edges, in seconds to minutes. --layer gat,
    or any setting of it, is the paper's graph attention with masked graph training. --mode joint also trains the
    dual-encoder; with --layer linear, only its query encoder, which takes minutes. Both, and --layer gat, run in one
    process or several (torchrun --nproc-per-node=4 -m gnnretrieval train …). After an interruption, the same command
    continues, with the same result.

    \b
    Example: gnnretrieval train work/graph
    Example: gnnretrieval train work/graph --out work/gat --layer gat
    Example: gnnretrieval train work/graph --out work/joint --layer linear --mode joint
    Example: gnnretrieval train work/graph --out work/joint-gat --mode joint --start-from work/gat
    """
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.mining.examples import open_examples
    from gnnretrieval.training.gnn.model import open_model
    from gnnretrieval.training.gnn.selection import what_was_kept
    from gnnretrieval.training.gnn.train import train_gnn
    from gnnretrieval.training.ranks import started_ranks

    out = out or beside(graph, "model")
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

        echo("\n".join(dry_run_lines(rehearse(store, dataset, opened, parsed, **given), parsed)))
        return
    with started_ranks(device) as ranks:
        if not ranks.first and ranks.agree(None) is None:
            return  # the model was already made
        calling = ranks.calling("train")
        made = train_gnn(store, dataset, opened, parsed, out, ranks=calling, overwrite=overwrite, **given)
        if not ranks.first:
            return
        if ranks.count > 1 and not calling.called:
            ranks.agree(None)
    chosen, before = made.meta["dev"]["chosen"], made.meta["dev"]["dual_encoder"]["RR@10"]
    echo(
        f"{out}: dev RR@10 {100 * chosen['RR@10']:.1f}, dual-encoder {100 * before:.1f} "
        f"({counted(made.meta['dev']['queries'], 'query')}; {what_was_kept(made.meta['dev'])})"
    )
    words = f"{quoted(dataset.path)} --checkpoint {quoted(out)} --out {quoted(f'{out}-features')}"
    features_of = f"gnnretrieval encoder encode {words}"
    echo_next(features_of if made.has_encoder else f"gnnretrieval embed {quoted(out)}")


@click.command()
@click.argument("model", type=PATH)
@out_beside_option
@click.option("--graph", type=PATH, help="Graph to embed over (default: the graph of training).")
@click.option("--features", type=PATH, help="Features by the dual-encoder trained with MODEL (--mode joint).")
@click.option("--changed", is_flag=True, help="Update the embeddings at --out after additions to the graph.")
@click.option("--one-vector", is_flag=True, help="One vector a passage, also where training kept several.")
@click.option("--memory", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Working memory in GiB.")
@verify_option
@device_option
@overwrite_option
def embed(
    model: Path,
    out: Path | None,
    graph: Path | None,
    features: Path | None,
    changed: bool,
    one_vector: bool,
    memory: float,
    verify: bool,
    device: str,
    overwrite: bool,
) -> None:
    """Compute the query-interactive embedding of every passage with MODEL, over the full graph.

    A passage has one vector more for each of its training questions, where training found on dev that this helps.

    \b
    Example: gnnretrieval embed work/model
    Example: gnnretrieval embed work/model --changed
    Example: gnnretrieval embed work/model --one-vector
    """
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.storage.verifying import require_as_made
    from gnnretrieval.training.gnn.embeddings import embed_passages, update_embeddings
    from gnnretrieval.training.gnn.model import open_model

    opened = open_model(model)
    out = out or beside(model, "embeddings-one-vector" if one_vector and opened.question_weight else "embeddings")
    place = graph or opened.made_from("graph")
    if verify:
        require_as_made(*(path for path in (model, place, features) if path is not None))
    store = open_graph(place)
    budget = int(memory * 2**30)
    if changed:
        made = update_embeddings(opened, store, out, device=device, memory=budget)
    else:
        given = None if features is None else open_features(features)
        common: dict[str, Any] = {"device": device, "memory": budget, "one_vector": one_vector, "overwrite": overwrite}
        made = embed_passages(opened, store, out, features=given, **common)
    several = f", {counted(len(made.vectors), 'vector')}" if made.has_questions else ""
    echo(f"{out}: {counted(made.meta['num_passages'], 'passage')}{several}, {made.meta['dimension']} dimensions")
    echo_next(f"gnnretrieval index build {quoted(out)}{' --changed' if changed else ''}")
