"""``gnnretrieval evaluate``, ``compare`` and ``fuse``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnretrieval.cli.options import PATH, dataset_options, echo_json, json_option
from gnnretrieval.errors import InputError

if TYPE_CHECKING:
    from gnnretrieval.index.fuse import Method

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
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex", "csv"]),
    default="text",
    show_default=True,
    help="How the table is printed; csv has every figure.",
)
@click.option("--details", is_flag=True, help="Every test too, with its bootstrap interval and effect size.")
@click.option("--randomisation", is_flag=True, help="Fisher's randomisation test beside the t-test.")
@click.option(
    "--changed", type=click.IntRange(1), help="The questions that the last run helps and hurts most, so many of each."
)
@json_option
def compare(
    runs: tuple[Path, ...],
    data: Path,
    split: str,
    qrels: str,
    where: dict[str, str],
    baseline: str | None,
    measures: str,
    form: str,
    details: bool,
    randomisation: bool,
    changed: int | None,
    as_json: bool,
) -> None:
    """TREC RUNS side by side, each tested against the baseline. A system's name is its file's, without the ending.

    \b
    Example: gnnretrieval compare work/dual-encoder.run work/gnn-encoder.run --data my-data
    Example: gnnretrieval compare work/*.run --data my-data --details --randomisation --changed 5
    """
    from gnnretrieval import evaluation
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.trec import read_run
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
    judged, first = dataset.split(split), baseline or names[0]
    asked = measures.split(",")
    table = evaluation.compare(judged, found, first, asked, split, provenance, randomisation)
    if as_json:
        echo_json(table.as_json())
        return
    forms = {
        "text": evaluation.format_comparison,
        "markdown": evaluation.markdown_comparison,
        "latex": evaluation.latex_comparison,
        "csv": evaluation.csv_comparison,
    }
    click.echo(forms[form](table), nl=form != "csv")
    if details:
        click.echo("\n" + evaluation.detailed_comparison(table))
    if changed is not None:
        last = next((name for name in reversed(names) if name != first), first)
        after, before = (
            next(iter(evaluation.per_query(judged, found[name], asked[:1]).values())) for name in (last, first)
        )
        texts = {query.id: query.text for query in dataset.queries_of(split)}
        measure = table.measure_names[0]
        helped, hurt = evaluation.most_changed(after, before, changed)
        for what, changes in (("most helped", helped), ("most hurt", hurt)):
            click.echo(f"\n{what} by {last}, {measure} × 100 (with {first} → with it):")
            for one in changes:
                click.echo(f"  {100 * one.before:5.1f} → {100 * one.after:5.1f}  {one.query}  {texts[one.query]}")
            if not changes:
                click.echo("  none")


def _weights(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float] | None:
    try:
        return None if value is None else [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r}: write numbers, one a run, such as 0.3,0.7.") from None


@click.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@click.option("--out", type=PATH, required=True, help="TREC run to write; gzipped where it ends in .gz.")
@click.option(
    "--method",
    type=click.Choice(["rrf", "weighted"]),
    default="rrf",
    show_default=True,
    help="By reciprocal ranks, or by scores brought to 0 … 1.",
)
@click.option("--weights", callback=_weights, help="One a run, separated by commas (default: 1 each).")
@click.option("--rrf-k", type=click.IntRange(1), default=60, show_default=True, help="The constant of rrf.")
@click.option("--depth", type=click.IntRange(1), default=1000, show_default=True, help="Passages kept of a query.")
def fuse(
    runs: tuple[Path, ...], out: Path, method: Method, weights: list[float] | None, rrf_k: int, depth: int
) -> None:
    """One TREC run of several RUNS, such as BM25's and a GNN-encoder's.

    \b
    Example: gnnretrieval fuse work/bm25.run work/gnn-encoder.run --out work/hybrid.run
    """
    from gnnretrieval.data.trec import read_run, write_run
    from gnnretrieval.index.fuse import fuse as fuse_runs

    fused = fuse_runs([read_run(run) for run in runs], method, weights=weights, k=rrf_k, depth=depth)
    write_run(out, fused, out.name.removesuffix(".gz").rsplit(".", 1)[0])
    click.echo(f"{out}: {len(fused):,} queries of {len(runs)} runs")
