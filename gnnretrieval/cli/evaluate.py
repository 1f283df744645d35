"""``gnnretrieval evaluate`` and ``compare``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import PATH, dataset_options, json_option, part_of
from gnnretrieval.cli.output import echo, echo_json, echo_next
from gnnretrieval.errors import InputError, counted
from gnnretrieval.progress import say
from gnnretrieval.settings import DEFAULT_MEASURES

if TYPE_CHECKING:
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.runs.trec import Run
    from gnnretrieval.evaluation.changed_queries import ChangedQuery
    from gnnretrieval.evaluation.compare import Comparison
    from gnnretrieval.evaluation.names import Measure

MEASURES = ",".join(DEFAULT_MEASURES)
measures_option = click.option(
    "--measures", default=MEASURES, show_default=True, help="Names by ir-measures or trec_eval, separated by commas."
)
self_option = click.option(
    "--exclude-self/--keep-self",
    default=None,
    help="Leave out or keep the passage with the query's id (default: leave it out if it also has the query's text).",
)
data_option = click.option("--data", type=PATH, required=True, help="Dataset directory with the judgements.")
split_option = click.option("--split", default="test", show_default=True, help="Split of the judgements.")


@click.command()
@click.argument("run", type=PATH)
@data_option
@split_option
@dataset_options
@measures_option
@self_option
@click.option("--per-query", is_flag=True, help="Also print the values of every query.")
@click.option(
    "--out", type=PATH, help="File for the values of every query, as trec_eval -q prints them: measure, query, value."
)
@json_option
def evaluate(
    run: Path,
    data: Path,
    split: str,
    qrels: str,
    where: dict[str, str],
    measures: str,
    exclude_self: bool | None,
    per_query: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure a TREC RUN of any tool. A query without results counts zero.

    \b
    Example: gnnretrieval evaluate work/gnn-encoder.run --data my-data --split test
    Example: gnnretrieval evaluate dpr.run --data nq --measures Answer@20,Answer@100 --out work/per-query.tsv
    """
    from gnnretrieval import evaluation
    from gnnretrieval.data.runs.trec import read_run

    parsed = evaluation.parse_measures(evaluation.split_names(measures))
    judged, dataset = _judged(data, split, qrels, where, parsed)
    runs = {"": read_run(run)}
    if not judged.keys() & runs[""].keys():
        raise InputError(f"no query of this run is in split {split!r} of {data}. Is it a run of another split?", run)
    runs, left_out = _leave_out_self(runs, exclude_self, data, judged)
    answers = evaluation.find_answers(dataset, runs.values(), parsed, list(judged)) if dataset else None
    values = evaluation.per_query(judged, runs[""], parsed, answers)
    means = evaluation.mean(values)
    if out is not None:
        evaluation.write_values(out, values)
    queries = len(next(iter(values.values())))
    if as_json:
        each = {"per_query": values} if per_query else {}
        echo_json(
            {"run": str(run), "split": split, "queries": queries, "self_excluded": left_out, "measures": means, **each}
        )
        return
    echo(f"{run}: {counted(queries, 'query')} of {split}, measures × 100")
    width = max(10, *map(len, means))
    for name, value in means.items():
        echo(f"  {name:<{width}} {100 * value:5.1f}")
    if per_query:
        echo("\n" + evaluation.format_values(values))
    same = f"--data {part_of(data, qrels, where)} --split {shlex.quote(split)}"
    echo_next(f"gnnretrieval compare OTHER.run {shlex.quote(str(run))} {same} says whether a difference is chance")


def _judged(
    data: Path, split: str, qrels: str, where: dict[str, str], measures: Sequence[Measure]
) -> tuple[dict[str, dict[str, int]], Dataset | None]:
    """The judgements of a split, and the dataset if its texts are needed; opening it may take a minute."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.dataset import read_split
    from gnnretrieval.evaluation.answers import AnswerMeasure, judged_in

    if not where and not any(isinstance(measure, AnswerMeasure) for measure in measures):
        return read_split(data, split, qrels), None
    dataset = Dataset.open(data, qrels, where)
    return judged_in(dataset, split, measures), dataset


def _leave_out_self(
    runs: dict[str, Run], exclude_self: bool | None, data: Path, judged: dict[str, dict[str, int]]
) -> tuple[dict[str, Run], int]:
    """The runs without queries that retrieve themselves, unless these are kept, and the number of these queries."""
    from gnnretrieval.evaluation import leave_out_self

    if exclude_self is False:
        return runs, 0
    left, count = leave_out_self(runs, data, judged, bool(exclude_self))
    if count:
        what = "the passage with the query's id" if exclude_self else "the passage that is the query (its id and text)"
        undo = "" if exclude_self else "; --keep-self keeps it"
        say(f"left out: {what}, for {count:,} of {len(judged):,} queries{undo}")
    return left, count


@click.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@data_option
@split_option
@dataset_options
@click.option("--baseline", help="Name of the system to test against (default: the first run's).")
@measures_option
@self_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex", "csv"]),
    default="text",
    show_default=True,
    help="How the table is printed; csv has every figure.",
)
@click.option("--details", is_flag=True, help="Also print every test, with its bootstrap interval and effect size.")
@click.option("--randomisation", is_flag=True, help="Also run Fisher's randomisation test.")
@click.option(
    "--changed", type=click.IntRange(1), help="Print this many questions that the last run helps, and hurts, most."
)
@click.option("--html", type=PATH, help="Write a page with tables and plots that opens offline.")
@json_option
def compare(
    runs: tuple[Path, ...],
    data: Path,
    split: str,
    qrels: str,
    where: dict[str, str],
    baseline: str | None,
    measures: str,
    exclude_self: bool | None,
    form: str,
    details: bool,
    randomisation: bool,
    changed: int | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Compare TREC RUNS of any tool, with tests against a baseline. A system's name is its file name without suffix.

    \b
    Example: gnnretrieval compare work/dual-encoder.run work/gnn-encoder.run --data my-data
    Example: gnnretrieval compare work/*.run --data my-data --details --randomisation --changed 5
    Example: gnnretrieval compare work/*.run --data my-data --html comparison.html
    """
    from gnnretrieval import evaluation
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.runs.trec import read_run
    from gnnretrieval.evaluation.comparison_page import Evidence, comparison_page, texts_of
    from gnnretrieval.pages.html import require_page_place, write_page
    from gnnretrieval.storage.provenance import library_versions, sha256_of_file

    run_of = _by_name(runs)
    names = list(run_of)
    if form == "csv" and not as_json and (details or changed is not None):
        raise click.UsageError("--details and --changed print text: leave them out with --format csv, or use --json.")
    if html is not None:
        require_page_place(html)
    parsed = evaluation.parse_measures(evaluation.split_names(measures))
    dataset = Dataset.open(data, qrels, where)
    judged = evaluation.judged_in(dataset, split, parsed)
    opened = {name: read_run(run) for name, run in run_of.items()}
    provenance: dict[str, Any] = {
        "dataset": dataset.provenance(),
        "runs": {name: sha256_of_file(run) for name, run in run_of.items()},
        "versions": library_versions(),
    }
    first = baseline or names[0]
    opened, provenance["self_excluded"] = _leave_out_self(opened, exclude_self, data, judged)
    answers = evaluation.find_answers(dataset, opened.values(), parsed, list(judged))
    table = evaluation.compare(judged, opened, first, parsed, split, provenance, randomisation, answers)
    lists = {}
    last = next((name for name in reversed(names) if name != first), first)
    if changed is not None:
        after, before = (
            next(iter(evaluation.per_query(judged, opened[name], parsed[:1], answers).values()))
            for name in (last, first)
        )
        lists = dict(zip(("helped", "hurt"), evaluation.most_changed(after, before, changed), strict=True))
    texts = {query.id: query.text for query in dataset.queries_of(split)} if lists or html is not None else {}
    if html is not None:
        files = {name: run.name for name, run in run_of.items()}
        judgements = f"{dataset.name}/{qrels}/{split}.tsv"
        evidence = Evidence(table, judged, opened, texts, texts_of(dataset), files, judgements)
        write_page(comparison_page(evidence, changed or 10), html)
        say(f"{html}: the page")
    measure = table.measure_names[0]
    if as_json:
        of_last = {
            what: [{**change._asdict(), "text": texts[change.query]} for change in changes]
            for what, changes in lists.items()
        }
        extra = {"changed": {"system": last, "measure": measure, **of_last}} if lists else {}
        echo_json(table.as_json() | extra)
        return
    _echo_table(table, form, details)
    for what, changes in lists.items():
        _echo_changed(f"most {what} by {last}, {measure} × 100 (with {first} → with it)", changes, texts)
    if not (details and changed and html):
        more = {"--details": details, "--changed 5": changed, "--html comparison.html": html}
        echo_next(f"the same with {' '.join(option for option, given in more.items() if not given)}")


def _by_name(runs: Sequence[Path]) -> dict[str, Path]:
    """The files of runs by the names of their systems."""
    names = [run.name.removesuffix(".gz").rsplit(".", 1)[0] for run in runs]
    if len(set(names)) < len(names):
        raise click.UsageError(f"two runs are both called {max(names, key=names.count)!r}: rename a file.")
    return dict(zip(names, runs, strict=True))


def _echo_table(table: Comparison, form: str, details: bool) -> None:
    from gnnretrieval import evaluation

    forms = {
        "text": evaluation.format_comparison,
        "markdown": evaluation.markdown_comparison,
        "latex": evaluation.latex_comparison,
        "csv": evaluation.csv_comparison,
    }
    echo(forms[form](table), nl=form != "csv")
    if details:
        echo("\n" + evaluation.detailed_comparison(table))


def _echo_changed(title: str, changes: Sequence[ChangedQuery], texts: Mapping[str, str]) -> None:
    echo(f"\n{title}:")
    for change in changes:
        echo(f"  {100 * change.before:5.1f} → {100 * change.after:5.1f}  {change.query}  {texts[change.query]}")
    if not changes:
        echo("  none")
