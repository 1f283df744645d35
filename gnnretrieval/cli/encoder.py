"""``gnnretrieval encoder``: train encoders, and make features by encoding or by importing vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.encoder_train import inspect, train
from gnnretrieval.cli.options import (
    PATH,
    SHARDS,
    beside,
    dataset_options,
    device_option,
    dry_run_option,
    out_beside_option,
    overwrite_option,
    part_of,
    shard_of,
    shard_options,
    sharding_of,
)
from gnnretrieval.cli.output import echo, echo_next, echo_shard, quoted
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.encoders.settings import EncoderSettings

VECTORS_HELP = ".npy (vectors, dimensions), or .parquet with columns of ids and of vectors"


@click.group()
def encoder() -> None:
    """Encoders: train them, encode texts as features, or import vectors of another encoder."""


encoder.add_command(train)
encoder.add_command(inspect)


_OF_ENDPOINT = [
    "dimensions",
    "input_types",
    "key_variable",
    "batch_texts",
    "concurrency",
    "requests_per_minute",
    "price",
]
_SECTIONS = {
    "A checkpoint": (
        *("query_checkpoint", "max_tokens", "query_max_tokens", "sentences", "sparse", "own_terms", "precision"),
        *("token_budget", "device"),
    ),
    "An embeddings endpoint": ("endpoint", *_OF_ENDPOINT),
    "In shards": SHARDS,
}


@encoder.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("dataset", type=PATH)
@out_beside_option
@dataset_options
@settings_options(EncoderSettings)
@device_option
@shard_options
@dry_run_option
@overwrite_option
def encode(
    dataset: Path,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    device: str,
    dry_run: bool,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Encode every passage and query of the DATASET directory. After an interruption, the same command continues.

    \b
    Example: gnnretrieval encoder encode my-data --checkpoint intfloat/e5-base-v2
    Example: gnnretrieval encoder encode my-data --checkpoint naver/splade-v3 --sparse --out work/terms
    Example: gnnretrieval encoder encode my-data --out work/features --shards 64 --engine ray --address auto
    Example: gnnretrieval encoder encode my-data --out work/features --shards 64 --dry-run
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.features import encode_dataset, encode_shard
    from gnnretrieval.encoders.sparse_features import encode_sparse
    from gnnretrieval.encoders.trained import trained_settings

    if settings["endpoint"] is None:
        for name in _OF_ENDPOINT:
            if settings[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --endpoint.")
    out = out or beside(dataset, "features")
    shard, storage, sharding = shard_of(settings), settings["storage"], sharding_of(settings)
    parsed = EncoderSettings.parse(settings_from(EncoderSettings, settings))
    opened = Dataset.open(dataset, qrels, where)
    if trained_settings(parsed).sparse and not dry_run and shard is None:
        sparse = encode_sparse(opened, parsed, out, device=device, sharding=sharding, overwrite=overwrite)
        echo(
            f"{out}: {sparse.meta['num_passages']:,} passages and {sparse.meta['num_queries']:,} queries, "
            f"{sparse.meta['num_passage_terms'] / sparse.meta['num_passages']:,.1f} terms a passage"
        )
        echo_next(
            f"gnnretrieval search --sparse {quoted(out)} --data {part_of(dataset, qrels, where)} --run sparse.run"
        )
        return
    if dry_run:
        from gnnretrieval.encoders.dry_run import forecast_encoding
        from gnnretrieval.shards import Sharding

        echo(forecast_encoding(opened, parsed, sharding or Sharding(shards=1), device=device).to_text())
        return
    if shard is not None:
        echo_shard(encode_shard(opened, parsed, out, shard, device=device, storage=storage), shard, storage)
        return
    made = encode_dataset(opened, parsed, out, device=device, sharding=sharding, overwrite=overwrite)
    echo(
        f"{out}: {made.meta['num_passages']:,} passages and {made.meta['num_queries']:,} queries, "
        f"{made.meta['dimension']} dimensions"
    )
    echo_next(f"gnnretrieval graph build {part_of(dataset, qrels, where)} {quoted(out)}")


@encoder.command("import")
@click.argument("dataset", type=PATH)
@click.option("--passages", type=PATH, required=True, help=f"Vectors of the passages: {VECTORS_HELP}.")
@click.option("--queries", type=PATH, required=True, help=f"Vectors of the queries, of every split: {VECTORS_HELP}.")
@click.option("--passage-ids", type=PATH, help="Ids for an .npy of passages, one per line.  [default: corpus.jsonl's]")
@click.option("--query-ids", type=PATH, help="Ids for an .npy of queries, one per line.  [default: queries.jsonl's]")
@click.option(
    "--name", required=True, help="The encoder's name. Vectors fit together if name, similarity and width do."
)
@click.option("--similarity", type=click.Choice(["cosine", "dot"]), required=True, help="How to compare the vectors.")
@click.option(
    "--scale", type=float, help="Factor on the similarity in the softmax.  [default: 20 for cosine, 1 for dot]"
)
@out_beside_option
@dataset_options
@overwrite_option
def import_(
    dataset: Path,
    passages: Path,
    queries: Path,
    passage_ids: Path | None,
    query_ids: Path | None,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    overwrite: bool,
    **settings: Any,
) -> None:
    """Make features from vectors of any other encoder, such as a paid API, for the texts of the DATASET directory.

    \b
    Example: gnnretrieval encoder import my-data --passages passages.npy --queries queries.parquet
             --name text-embedding-3-large --similarity cosine --out work/features
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.vectors import VectorSettings, import_vectors

    out = out or beside(dataset, "features")
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
        f"{made.meta['dimension']} dimensions, imported from {parsed.name}"
    )
    echo_next(f"gnnretrieval graph build {part_of(dataset, qrels, where)} {quoted(out)}")
