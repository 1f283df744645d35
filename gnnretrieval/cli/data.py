"""``gnnretrieval data``: dataset directories."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.data_import import convert, import_
from gnnretrieval.cli.options import PATH, dataset_options, echo_json, json_option, out_option, overwrite_option
from gnnretrieval.progress import say


@click.group()
def data() -> None:
    """Dataset directories: make one, or see what is in one."""


data.add_command(import_)
data.add_command(convert)


@data.command()
@out_option
@overwrite_option
def docstrings(out: Path, overwrite: bool) -> None:
    """Make the docstring corpus from the installed numpy, scipy, scikit-learn and networkx.

    Find the function by what someone else says it does: passages are functions and classes without their one-line
    summaries, queries are those summaries (train) and descriptions in other functions' "See Also" (train, dev, test).

    \b
    Example: gnnretrieval data docstrings --out work/docstrings
    """
    from gnnretrieval.data import make_docstring_corpus

    made = make_docstring_corpus(out, overwrite=overwrite, say=say)
    counts = made.meta["counts"]
    click.echo(f"{out}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()))


@data.command()
@click.argument("dataset", type=PATH)
@out_option
@dataset_options
@overwrite_option
def sentences(dataset: Path, out: Path, qrels: str, where: dict[str, str], overwrite: bool) -> None:
    """Make a dataset directory whose passages are the sentences of DATASET's: a graph of it has them as its nodes.

    Relevant are the sentences that hold one of a query's answers (metadata of queries.jsonl), else all of the passage.
    encoder encode --sentences token (or mean) then reads the sentences of a passage together.

    \b
    Example: gnnretrieval data sentences my-data --out work/sentences
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.sentences import make_sentence_dataset

    made = make_sentence_dataset(Dataset.open(dataset, qrels, where), out, overwrite=overwrite, say=say)
    counts = made.meta["counts"]
    click.echo(f"{out}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()))


@data.command()
@click.argument("dataset", type=PATH)
@dataset_options
@json_option
def inspect(dataset: Path, qrels: str, where: dict[str, str], as_json: bool) -> None:
    """Counts, lengths, duplicates and leakage of the DATASET directory (BEIR layout), and what to change.

    \b
    Example: gnnretrieval data inspect my-data --where domain=squad
    """
    from gnnretrieval.data import Dataset, format_inspection, inspect_dataset

    figures = inspect_dataset(Dataset.open(dataset, qrels, where))
    if as_json:
        echo_json(figures)
    else:
        click.echo(format_inspection(figures))
