"""``gnnretrieval data``: dataset directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnretrieval.cli.data_import import convert, import_
from gnnretrieval.cli.options import (
    PATH,
    dataset_options,
    json_option,
    named_after,
    out_beside_option,
    overwrite_option,
)
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import InputError
from gnnretrieval.progress import say

if TYPE_CHECKING:
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.docstring_corpus.corpus import Summaries
    from gnnretrieval.data.inspection.near_copies import QueryVectors


@click.group()
def data() -> None:
    """Dataset directories: make them, inspect them, convert them."""


data.add_command(import_)
data.add_command(convert)


@data.command()
@click.option("--out", type=PATH, default=Path("docstrings"), show_default=True, help="Directory to make.")
@click.option(
    "--summaries",
    type=click.Choice(["passage", "question"]),
    default="passage",
    show_default=True,
    help="Where one-line summaries go: they begin their passages, or they become training questions instead.",
)
@overwrite_option
def docstrings(out: Path, summaries: Summaries, overwrite: bool) -> None:
    """Make the docstring corpus from the installed numpy, scipy, scikit-learn and networkx.

    Passages are functions and classes. Queries (train, dev, test) are descriptions of them in the "See Also" of other
    functions. With --summaries question, the one-line summary of each passage is cut from it and becomes its training
    question; dev and test are the same.

    \b
    Example: gnnretrieval data docstrings
    Example: gnnretrieval data docstrings --summaries question --out work/docstrings-cut
    """
    from gnnretrieval.data import make_docstring_corpus

    made = make_docstring_corpus(out, summaries, overwrite=overwrite)
    counts = made.meta["counts"]
    echo(f"{out}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()))
    echo_next(f"gnnretrieval data inspect {quoted(out)}, then gnnretrieval encoder encode {quoted(out)}")


@data.command()
@click.argument("dataset", type=PATH)
@out_beside_option
@dataset_options
@overwrite_option
def sentences(dataset: Path, out: Path | None, qrels: str, where: dict[str, str], overwrite: bool) -> None:
    """Split the passages of DATASET into sentences: make a dataset directory with the sentences as passages.

    The relevant sentences are those with one of the query's answers (metadata of queries.jsonl), otherwise all of a
    relevant passage. encoder encode --sentences token (or mean) then encodes the sentences of a passage together.

    \b
    Example: gnnretrieval data sentences my-data
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.sentences import make_sentence_dataset

    out = out or named_after(dataset, "-sentences")
    made = make_sentence_dataset(Dataset.open(dataset, qrels, where), out, overwrite=overwrite)
    counts = made.meta["counts"]
    echo(f"{out}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()))
    echo_next(f"gnnretrieval encoder encode {quoted(out)} --sentences token")


@data.command()
@click.argument("dataset", type=PATH)
@dataset_options
@click.option("--checkpoint", help="Encoder, by name or path: also count lengths in its tokens, and what it truncates.")
@click.option("--max-tokens", type=click.IntRange(1), help="Limit of the encoder.  [default: the checkpoint's]")
@click.option("--query-max-tokens", type=click.IntRange(1), help="Limit for queries.  [default: as for passages]")
@click.option("--features", type=PATH, help="Features of DATASET: also find near copies of training queries by cosine.")
@click.option("--most", type=click.IntRange(0), default=3, show_default=True, help="Examples of each kind to show.")
@json_option
@click.option("--html", type=PATH, help="Write the figures as a page with plots that opens offline.")
def inspect(
    dataset: Path,
    qrels: str,
    where: dict[str, str],
    checkpoint: str | None,
    max_tokens: int | None,
    query_max_tokens: int | None,
    features: Path | None,
    most: int,
    as_json: bool,
    html: Path | None,
) -> None:
    """Report counts, lengths, duplicates, leakage and problems of the DATASET directory (BEIR layout), with advice.

    If it cannot be opened, all its problems are listed, and the exit code is 1.

    \b
    Example: gnnretrieval data inspect my-data --where domain=squad
    Example: gnnretrieval data inspect my-data --checkpoint intfloat/e5-base-v2 --html my-data.html
    Example: gnnretrieval data inspect my-data --features work/features
    """
    from gnnretrieval.data import Dataset, inspect_dataset
    from gnnretrieval.data.inspection.inspect import inspect_files
    from gnnretrieval.data.inspection.report import DatasetReport, FilesReport
    from gnnretrieval.pages.html import require_page_place, write_page

    if checkpoint is None and (max_tokens or query_max_tokens):
        raise click.UsageError("--max-tokens and --query-max-tokens limit an encoder: give --checkpoint too.")
    if html is not None:
        require_page_place(html)
    tokens = None
    if checkpoint is not None:
        from gnnretrieval.encoders.token_counts import EncoderTokens

        tokens = EncoderTokens(
            EncoderSettings(checkpoint=checkpoint, max_tokens=max_tokens, query_max_tokens=query_max_tokens)
        )
    report: DatasetReport | FilesReport
    refused: InputError | None = None
    try:
        opened = Dataset.open(dataset, qrels, where)
        vectors = _query_vectors(features, opened) if features is not None else None
        report = inspect_dataset(opened, tokens, vectors, most=most)
    except InputError as error:
        if not dataset.is_dir():
            raise
        report = inspect_files(dataset, qrels)
        if not any(problem.is_error for problem in report.problems):
            raise  # the error is not in the files
        refused = error
    if html is not None:
        write_page(report.to_html(), html)
        say(f"{html}: the page")
    if as_json:
        echo_json(report.as_json())
    else:
        echo(report.to_text())
    if refused is not None:
        raise refused


def _query_vectors(path: Path, dataset: Dataset) -> QueryVectors:
    """The queries' vectors from the features at ``path``, which must belong to this dataset's texts."""
    from gnnretrieval.data.inspection.near_copies import QueryVectors
    from gnnretrieval.encoders.features import open_features

    opened = open_features(path)
    opened.require_of(dataset)
    return QueryVectors(opened.meta["encoder"]["checkpoint"], opened.query_rows(), opened.queries)
