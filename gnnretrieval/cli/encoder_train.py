"""``gnnretrieval encoder train`` and ``gnnretrieval encoder inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import PATH, device_option, json_option
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.progress import say
from gnnretrieval.recipes.stages import timed_stage

if TYPE_CHECKING:
    from gnnretrieval.storage.artifacts import Artifact


@click.command()
@click.argument("recipe")
@click.option("--data", type=PATH, help="Dataset directory, instead of the recipe's.")
@click.option(
    "--out", type=PATH, help="Where everything goes, with one directory per stage.  [default: named as the recipe]"
)
@click.option(
    "--small", is_flag=True, help="Use the recipe's settings for small data: a few thousand questions, a CPU."
)
@click.option("--only", metavar="STAGE", multiple=True, help="Make this stage and what it builds on; may be repeated.")
@click.option(
    "--query-share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Train on this share of the queries, and leave the others for a GNN-encoder.",
)
@device_option
@json_option
def train(
    recipe: str,
    data: Path | None,
    out: Path | None,
    small: bool,
    only: tuple[str, ...],
    query_share: float | None,
    device: str,
    as_json: bool,
) -> None:
    """Train an encoder by a RECIPE, a TOML file or one of these names.

    Of one vector: dpr, rocketqa, rocketqav2, pair, dcsr, ance, adore, retromae, cocondenser. Of several: colbert, coil,
    me-bert. Of terms: splade, splade-distilled, term-weights. RECIPE reader trains a reader.

    Every stage is an artifact in --out. A trained encoder can be used like a checkpoint, for example with encoder
    encode --checkpoint. After an interruption, the same command continues. To train with several processes:
    torchrun --nproc-per-node=4 -m gnnretrieval encoder train …

    \b
    Example: gnnretrieval encoder train dpr --data my-data
    Example: gnnretrieval encoder train rocketqa --small --data my-data --out work/rocketqa
    """
    from gnnretrieval.evaluation import format_comparison
    from gnnretrieval.recipes import write_report
    from gnnretrieval.recipes.run_encoder import run_encoder_recipe
    from gnnretrieval.training.ranks import started_ranks

    out = out or Path(Path(recipe).stem)
    with started_ranks(device) as ranks:
        common: dict[str, Any] = {"query_share": query_share, "device": device, "ranks": ranks}
        made = run_encoder_recipe(recipe, out, data=data, small=small, only=only, **common)
    if made is None:
        return
    with timed_stage("report"):
        report = write_report(made)
    if as_json:
        echo_json(made.comparison.as_json())
        return
    echo("\n" + format_comparison(made.comparison))
    echo(f"\nThe report, to open in a browser: {report}")
    encoders = [name for name, artifact in made.made.items() if artifact.meta["kind"] == "encoder"]
    readers = [name for name, artifact in made.made.items() if artifact.meta["kind"] == "reader"]
    if readers:
        echo_next(f'gnnretrieval answer "a question" --index INDEX --reader {quoted(out / readers[-1])}')
    elif encoders:
        echo_next(f"gnnretrieval encoder encode {quoted(made.dataset.path)} --checkpoint {quoted(out / encoders[-1])}")


@click.command()
@click.argument("encoder", type=PATH)
@click.option("--html", type=PATH, help="Write a page with the plots of its training.")
@json_option
def inspect(encoder: Path, html: Path | None, as_json: bool) -> None:
    """Show the training data and the training log of an ENCODER, cross-encoder, reader or GNN-encoder of this package.

    \b
    Example: gnnretrieval encoder inspect work/dpr/dpr --html dpr.html
    """
    from gnnretrieval.training.encoder.inspection import inspection, inspection_lines, open_trained
    from gnnretrieval.training.log_page import write_log_page

    opened: Artifact = open_trained(encoder)
    figures: dict[str, Any] = inspection(opened)
    if html is not None:
        write_log_page(opened.path / "log.jsonl", html, str(encoder))
        say(f"{html}: the plots of its training")
    if as_json:
        echo_json(figures)
    else:
        echo("\n".join(inspection_lines(figures)))
