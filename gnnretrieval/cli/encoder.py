"""``gnnretrieval encoder``: encoders trained, and features, encoded here or imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.encoder_train import inspect, train
from gnnretrieval.cli.options import PATH, dataset_options, device_option, out_option, overwrite_option
from gnnretrieval.cli.output import echo
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.encoders.settings import EncoderSettings

VECTORS_HELP = ".npy (vectors, dimensions), or .parquet with columns of ids and of vectors"


@click.group()
def encoder() -> None:
    """Encoders: train them, turn texts into features, or import the vectors of one that is not here."""


encoder.add_command(train)
encoder.add_command(inspect)


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
    made = encode_dataset(opened, parsed, out, device=device, overwrite=overwrite)
    echo(
        f"{out}: {made.meta['num_passages']:,} passages and {made.meta['num_queries']:,} queries, "
        f"{made.meta['dimension']} dimensions"
    )


@encoder.command("import")
@click.argument("dataset", type=PATH)
@click.option("--passages", type=PATH, required=True, help=f"Vectors of the passages: {VECTORS_HELP}.")
@click.option("--queries", type=PATH, required=True, help=f"Vectors of the queries, of every split: {VECTORS_HELP}.")
@click.option("--passage-ids", type=PATH, help="Ids of an .npy of passages, one a line.  [default: corpus.jsonl's]")
@click.option("--query-ids", type=PATH, help="Ids of an .npy of queries, one a line.  [default: queries.jsonl's]")
@click.option("--name", required=True, help="The encoder's name: vectors of one name, similarity and width fit.")
@click.option("--similarity", type=click.Choice(["cosine", "dot"]), required=True, help="How they are compared.")
@click.option(
    "--scale", type=float, help="Factor on the similarity in the softmax.  [default: 20 for cosine, 1 for dot]"
)
@out_option
@dataset_options
@overwrite_option
def import_(
    dataset: Path,
    passages: Path,
    queries: Path,
    passage_ids: Path | None,
    query_ids: Path | None,
    out: Path,
    qrels: str,
    where: dict[str, str],
    overwrite: bool,
    **settings: Any,
) -> None:
    """Make features of vectors that any other encoder gave the texts of the DATASET directory, such as a paid API.

    \b
    Example: gnnretrieval encoder import my-data --passages passages.npy --queries queries.parquet
             --name text-embedding-3-large --similarity cosine --out work/features
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.vectors import VectorSettings, import_vectors

    parsed = VectorSettings.parse({name: value for name, value in settings.items() if value is not None})
    made = import_vectors(
        Dataset.open(dataset, qrels, where),
        passages,
        queries,
        parsed,
        out,
        passage_ids=passage_ids,
        query_ids=query_ids,
        overwrite=overwrite,
    )
    echo(
        f"{out}: {made.meta['num_passages']:,} passages and {made.meta['num_queries']:,} queries, "
        f"{made.meta['dimension']} dimensions, made outside by {parsed.name}"
    )
