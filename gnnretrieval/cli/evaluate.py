"""``gnnretrieval evaluate`` and ``gnnretrieval compare``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH, dataset_options, echo_json, json_option
from gnnretrieval.errors import InputError

MEASURES = "RR@10,nDCG@10,R@1,R@5,R@20,R@100"
measures_option = click.option(
    "--measures", default=MEASURES, show_default=True, help="ir-measures names, separated by commas."
)
data_option = click.option("--data", type=PATH, required=True, help="Dataset directory with the judgements.")
split_option = click.option("--split", default="test", show_default=True, help="Split of the judgements.")


@click.command()
@click.argument("run", type=PATH)
@data_option
@split_option
@dataset_options
@measures_option
@json_option
def evaluate(
    run: Path, data: Path, split: str, qrels: str, where: dict[str, str], measures: str, as_json: bool
) -> None:
    """Measures of a TREC RUN; a query without results counts zero.

    \b
    Example: gnnretrieval evaluate work/gnn-encoder.run --data my-data --split test
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.trec import read_run
    from gnnretrieval.evaluation import mean, per_query

    judgements = Dataset.open(data, qrels, where).split(split)
    found = read_run(run)
    if not judgements.keys() & found.keys():
        raise InputError(f"no query of this run is in split {split!r} of {data}. Is it a run of another split?", run)
    values = per_query(judgements, found, measures.split(","))
    means = mean(values)
    queries = len(next(iter(values.values())))
    if as_json:
        echo_json({"run": str(run), "split": split, "queries": queries, "measures": means})
        return
    click.echo(f"{run}: {queries:,} queries of {split}, measures × 100")
    for name, value in means.items():
        click.echo(f"  {name:<10} {100 * value:5.1f}")


@click.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@data_option
@split_option
@dataset_options
@click.option("--baseline", help="Name of the system to test against (default: the first run's).")
@measures_option
@json_option
def compare(
    runs: tuple[Path, ...],
    data: Path,
    split: str,
    qrels: str,
    where: dict[str, str],
    baseline: str | None,
    measures: str,
    as_json: bool,
) -> None:
    """TREC RUNS side by side, each tested against the baseline. A system's name is its file's, without the ending.

    \b
    Example: gnnretrieval compare work/dual-encoder.run work/gnn-encoder.run --data my-data
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.trec import read_run
    from gnnretrieval.evaluation import compare as compare_runs
    from gnnretrieval.evaluation import format_comparison
    from gnnretrieval.provenance import library_versions, sha256_of_file

    names = [run.name.removesuffix(".gz").rsplit(".", 1)[0] for run in runs]
    if len(set(names)) < len(names):
        raise click.UsageError(f"two runs are both called {max(names, key=names.count)!r}: rename a file.")
    dataset = Dataset.open(data, qrels, where)
    found = {name: read_run(run) for name, run in zip(names, runs, strict=True)}
    provenance = {
        "dataset": dataset.provenance(),
        "runs": {name: sha256_of_file(run) for name, run in zip(names, runs, strict=True)},
        "versions": library_versions(),
    }
    table = compare_runs(dataset.split(split), found, baseline or names[0], measures.split(","), split, provenance)
    if as_json:
        echo_json(table.as_json())
    else:
        click.echo(format_comparison(table))
