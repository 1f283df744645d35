"""``gnnretrieval data import`` and ``data convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnretrieval.cli.options import (
    PATH,
    columns_option,
    dataset_options,
    named_after,
    out_beside_option,
    out_option,
    overwrite_option,
)
from gnnretrieval.cli.output import echo, echo_next
from gnnretrieval.errors import counted
from gnnretrieval.pages.text_table import in_columns


def _list(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from gnnretrieval.data.formats.recognise import ALL_FORMATS

        echo("\n".join(in_columns([[name, known.what] for name, known in ALL_FORMATS.items()], left=2)))
        context.exit()


@click.command("import")
@click.argument("sources", metavar="[FORMAT][@SPLIT]=PATH…", nargs=-1, required=True)
@out_option
@columns_option
@click.option("--skip-unknown", is_flag=True, help="Leave out judgements of unknown queries and passages.")
@click.option(
    "--formats",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the formats and exit.",
)
@overwrite_option
def import_(sources: tuple[str, ...], out: Path, columns: dict[str, str], skip_unknown: bool, overwrite: bool) -> None:
    """Make a dataset directory from files of BEIR, MS MARCO, DPR, SQuAD or TREC, from tables, or from ir_datasets.

    The format of a file is recognised from its name and first lines, and its split from its name; FORMAT@SPLIT=PATH
    names them. From a directory, every recognised file is imported. Files may be gzipped, and are read as streams.
    ir-datasets=ID imports a dataset of that package, which downloads it.

    \b
    Example: gnnretrieval data import collection.tsv queries.train.tsv qrels.train.tsv --out msmarco
    Example: gnnretrieval data import psgs_w100.tsv biencoder-nq-train.json.gz dpr-qa@test=nq-test.qa.csv --out nq
    Example: gnnretrieval data import ir-datasets=beir/scifact/train ir-datasets=beir/scifact/test --out scifact
    Example: gnnretrieval data import docs.csv --column passages.text=prose asked.csv qrels@train=clicks.csv --out mine
    """
    from gnnretrieval.data.importing import import_dataset
    from gnnretrieval.data.sources import source_of

    files = [file for text in sources for file in source_of(text)]
    made = import_dataset(files, out, columns=columns, skip_unknown=skip_unknown, overwrite=overwrite)
    counts = made.meta["counts"]
    parts = [counted(counts["passages"], "passage"), counted(counts["queries"], "query")]
    parts += [f"{counted(count, 'judgement')} of {split}" for split, count in counts["judgements"].items()]
    parts += [f"{counted(count, 'negative')} of {split}" for split, count in counts["negatives"].items()]
    echo(f"{out}: " + ", ".join(parts))
    echo_next(f"gnnretrieval data inspect {out}, then gnnretrieval encoder encode {out}")


@click.command()
@click.argument("dataset", type=PATH)
@click.option(
    "--to",
    type=click.Choice(["beir", "msmarco", "dpr", "squad", "trec", "tsv", "csv", "parquet"]),
    required=True,
    help="Format of the files.",
)
@out_beside_option
@dataset_options
@overwrite_option
def convert(dataset: Path, to: Any, out: Path | None, qrels: str, where: dict[str, str], overwrite: bool) -> None:
    """Write the DATASET directory as files of another format. Counts tell what that format cannot hold.

    \b
    Example: gnnretrieval data convert my-data --to msmarco
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.converting import convert_dataset

    out = out or named_after(dataset, f"-{to}")
    made = convert_dataset(Dataset.open(dataset, qrels, where), to, out, overwrite=overwrite)
    echo(f"{out}: {', '.join(sorted(made.meta['files']))}")
