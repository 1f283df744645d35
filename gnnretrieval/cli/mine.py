"""``gnnretrieval mine``: hard negatives, denoised negatives, pseudo-labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import (
    PATH,
    beside,
    dataset_options,
    device_option,
    out_beside_option,
    overwrite_option,
    sharding_of,
    shards_option,
    worker_options,
)
from gnnretrieval.cli.output import echo, echo_next, quoted
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.mining.denoise import DenoiseSettings
from gnnretrieval.mining.negatives import NegativeSettings
from gnnretrieval.mining.pseudo_label import PseudoLabelSettings

if TYPE_CHECKING:
    from gnnretrieval.mining import Examples


@click.group()
def mine() -> None:
    """Training examples: mine hard negatives, denoise them, or pseudo-label queries, each with a report."""


@mine.command()
@click.argument("dataset", type=PATH)
@click.option(
    "--features", type=PATH, help="Retrieve by the dual-encoder of these features.  [default: retrieve by BM25]"
)
@out_beside_option
@dataset_options
@settings_options(NegativeSettings)
@device_option
@overwrite_option
def negatives(
    dataset: Path,
    features: Path | None,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    device: str,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Mine hard negatives for the queries of a split of DATASET: highly ranked passages that are not relevant.

    \b
    Example: gnnretrieval mine negatives my-data
    Example: gnnretrieval mine negatives my-data --features work/features --top-k 200 --negatives 30
             --out work/negatives
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.mining import mine_negatives

    parsed = NegativeSettings.parse(settings_from(NegativeSettings, settings))
    opened = Dataset.open(dataset, qrels, where)
    vectors = open_features(features) if features is not None else None
    out = out or beside(dataset, "negatives")
    _echo(mine_negatives(opened, parsed, out, features=vectors, device=device, overwrite=overwrite))
    echo_next(
        f"gnnretrieval mine denoise {quoted(out)} --cross-encoder NAME, or gnnretrieval train GRAPH --layer gat "
        f"--examples {quoted(out)}"
    )


@mine.command("denoise")
@click.argument("examples", type=PATH)
@click.option("--data", type=PATH, help="The dataset, if it moved since EXAMPLES were mined.")
@out_beside_option
@settings_options(DenoiseSettings, required=["cross_encoder"])
@shards_option
@worker_options("shards")
@device_option
@overwrite_option
def denoise_(
    examples: Path, data: Path | None, out: Path | None, device: str, overwrite: bool, **settings: Any
) -> None:
    """Filter the negatives of EXAMPLES by a cross-encoder. After an interruption, the same command continues.

    \b
    Example: gnnretrieval mine denoise work/negatives --cross-encoder cross-encoder/ms-marco-MiniLM-L6-v2
             --out work/denoised
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.mining import denoise, open_examples

    sharding = sharding_of(settings)
    parsed = DenoiseSettings.parse(settings_from(DenoiseSettings, settings))
    opened = open_examples(examples)
    provenance = opened.meta["dataset"]
    dataset = Dataset.open(data or opened.made_from("dataset"), provenance["qrels"], provenance.get("where"))
    out = out or beside(examples, "denoised")
    _echo(denoise(dataset, opened, parsed, out, device=device, sharding=sharding, overwrite=overwrite))
    echo_next(f"gnnretrieval train GRAPH --layer gat --examples {quoted(out)}")


@mine.command("pseudo-label")
@click.argument("dataset", type=PATH)
@click.argument("features", type=PATH)
@out_beside_option
@dataset_options
@settings_options(PseudoLabelSettings, required=["cross_encoder"])
@shards_option
@worker_options("shards")
@device_option
@overwrite_option
def pseudo_label_(
    dataset: Path,
    features: Path,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    device: str,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Label the unjudged queries of DATASET: a cross-encoder judges the passages that FEATURES retrieve.

    After an interruption, the same command continues.

    \b
    Example: gnnretrieval mine pseudo-label my-data work/features
             --cross-encoder cross-encoder/ms-marco-MiniLM-L6-v2 --out work/pseudo-labels
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.mining import pseudo_label

    sharding = sharding_of(settings)
    parsed = PseudoLabelSettings.parse(settings_from(PseudoLabelSettings, settings))
    opened, vectors = Dataset.open(dataset, qrels, where), open_features(features)
    out = out or beside(dataset, "pseudo-labels")
    _echo(pseudo_label(opened, vectors, parsed, out, device=device, sharding=sharding, overwrite=overwrite))
    echo_next(f"gnnretrieval train GRAPH --layer gat --examples {quoted(out)}")


def _echo(made: Examples) -> None:
    echo(f"{made.path}\n{made.report.to_text()}")
