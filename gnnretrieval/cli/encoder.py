"""``gnnretrieval encoder``: features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import PATH, dataset_options, device_option, out_option, overwrite_option
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.progress import say


@click.group()
def encoder() -> None:
    """Dual-encoders: turn texts into features."""


@encoder.command()
@click.argument("dataset", type=PATH)
@out_option
@dataset_options
@settings_options(EncoderSettings)
@device_option
@overwrite_option
def encode(
    dataset: Path, out: Path, qrels: str, where: dict[str, str], device: str, overwrite: bool, **settings: Any
) -> None:
    """Encode every passage and query of the DATASET directory. Interrupted, the same command goes on.

    \b
    Example: gnnretrieval encoder encode my-data --checkpoint intfloat/e5-base-v2 --out work/features
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import encode_dataset

    parsed = EncoderSettings.parse(settings_from(EncoderSettings, settings))
    opened = Dataset.open(dataset, qrels, where)
    made = encode_dataset(opened, parsed, out, device=device, overwrite=overwrite, say=say)
    click.echo(
        f"{out}: {made.meta['num_passages']:,} passages and {made.meta['num_queries']:,} queries, "
        f"{made.meta['dimension']} dimensions"
    )
