"""``gnnretrieval feedback``: datasets from event logs, and logs with a known truth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import (
    PATH,
    beside,
    columns_option,
    dataset_options,
    json_option,
    out_beside_option,
    overwrite_option,
)
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.cli.sections import SectionedCommand
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.errors import InputError, counted
from gnnretrieval.feedback.settings import FeedbackSettings, SimulationSettings
from gnnretrieval.progress import say

if TYPE_CHECKING:
    from gnnretrieval.feedback import ImportedFeedback

_SECTIONS = {
    "Cleaning": ("most_per_minute", "most_per_day", "min_dwell"),
    "Judgements": ("prior_strength", "confidence", "level", "of_background", "of_best", "negative_level"),
}


def _time(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """A date or time in ISO 8601; without a zone, in UTC."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: write a date such as 2026-03-01, or a time such as 2026-03-01T09:30:00Z."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@click.group()
def feedback() -> None:
    """Clicks and thumbs of a running search: make a dataset of them, forget some, or simulate a log to test by."""


@feedback.command("import", cls=SectionedCommand, sections=_SECTIONS)
@click.argument("logs", metavar="LOG…", nargs=-1, required=True, type=PATH)
@click.option("--passages", type=PATH, required=True, help="Dataset directory, or file of passages.")
@out_beside_option
@columns_option
@click.option("--redact", is_flag=True, help="Mask e-mail addresses, phone, account and card numbers in questions.")
@click.option("--keep-days", type=click.IntRange(1), help="Drop events that are older, counted from today in UTC.")
@click.option("--dev-from", metavar="DATE", callback=_time, help="Start of the dev split.  [default: by --dev-share]")
@click.option(
    "--test-from", metavar="DATE", callback=_time, help="Start of the test split.  [default: by --test-share]"
)
@settings_options(FeedbackSettings)
@click.option("--hard-negatives", type=PATH, help="Also write the hard negatives of train, as training examples.")
@json_option
@click.option("--html", type=PATH, help="Write the report as a page that opens offline.")
@overwrite_option
def import_(
    logs: tuple[Path, ...],
    passages: Path,
    out: Path | None,
    columns: dict[str, str],
    redact: bool,
    keep_days: int | None,
    dev_from: datetime | None,
    test_from: datetime | None,
    hard_negatives: Path | None,
    as_json: bool,
    html: Path | None,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Make a dataset directory from event logs: cleaned, split by time, with judgements free of position bias.

    A LOG is JSON lines, CSV, TSV or Parquet: one line an impression with a list of the shown passages, or one line a
    shown passage. Columns with usual names are found: question, question_id, time, session, shown, passage, position,
    clicked, dwell, thumbs. The report says what each was taken for, what was dropped and why, and how much less often
    lower positions are examined.

    \b
    Example: gnnretrieval feedback import march.jsonl april.jsonl.gz --passages my-data
    Example: gnnretrieval feedback import log.csv --passages docs.csv --column question=input --redact
             --keep-days 180 --out my-feedback
    """
    from gnnretrieval.feedback import import_feedback
    from gnnretrieval.pages.html import require_page_place, write_page

    if html is not None:
        require_page_place(html)
    out = out or beside(logs[0], "feedback")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    made = import_feedback(
        logs,
        passages,
        out,
        FeedbackSettings.parse(settings_from(FeedbackSettings, settings)),
        columns=columns,
        redact=redact,
        keep_from=None if keep_days is None else midnight - timedelta(days=keep_days),
        dev_from=dev_from,
        test_from=test_from,
        overwrite=overwrite,
    )
    report = made.report
    if html is not None:
        write_page(report.to_html(), html)
        say(f"{html}: the page")
    if as_json:
        echo_json(report.as_json())
    else:
        echo(report.to_text())
    if hard_negatives is not None:
        _write_hard_negatives(made, hard_negatives, overwrite)
    echo_next(f"gnnretrieval data inspect {quoted(out)}, then gnnretrieval encoder encode {quoted(out)}")


def _write_hard_negatives(made: ImportedFeedback, out: Path, overwrite: bool) -> None:
    from gnnretrieval.data import Dataset
    from gnnretrieval.feedback.hard_negatives import make_feedback_examples

    examples = make_feedback_examples(Dataset.open(made.path), out, overwrite=overwrite)
    say(f"{examples.path}: {counted(examples.report.candidates.negatives, 'hard negative')}")


@feedback.command()
@click.argument("query", type=PATH)
@click.option("--database", default="", help="PostgreSQL, as postgresql://HOST/NAME.  [default: by PGHOST and so on]")
@click.option("--out", type=PATH, help="The log, as JSON lines.  [default: log.jsonl beside the query]")
def fetch(query: Path, database: str, out: Path | None) -> None:
    """Write what the file QUERY, one SELECT, finds in PostgreSQL as an event log.

    Name the columns by AS, for example shown, clicked, session. Arrays become lists. The query runs in a read-only
    transaction. Leave the password to PGPASSWORD or ~/.pgpass.

    \b
    Example: gnnretrieval feedback fetch clicks.sql --database postgresql://db/shop --out today.jsonl
    """
    from gnnretrieval.feedback import fetch_events

    out = out or beside(query, "log.jsonl")
    try:
        text = query.read_text(encoding="utf-8-sig")  # PostgreSQL takes a byte order mark for a word
    except (OSError, UnicodeDecodeError):
        raise InputError("not a readable text file; wanted one with a SELECT.", query) from None
    echo(f"{out}: {counted(fetch_events(text, database, out), 'event')}")
    echo_next(f"gnnretrieval feedback import {quoted(out)} --passages PASSAGES")


@feedback.command()
@click.argument("dataset", type=PATH)
@click.option("--out", type=PATH, help="The log, as JSON lines.  [default: log.jsonl beside the dataset]")
@dataset_options
@click.option("--run", "run_file", type=PATH, help="Show the rankings of this TREC run.  [default: BM25's]")
@settings_options(SimulationSettings)
@json_option
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def simulate(
    dataset: Path,
    out: Path | None,
    qrels: str,
    where: dict[str, str],
    run_file: Path | None,
    as_json: bool,
    overwrite: bool,
    **settings: Any,
) -> None:
    """Write a log of simulated users over DATASET: biased by position, partly wrong.

    The judgements of DATASET are the truth, so the log tests feedback import. The propensities are printed, and the
    dates from which the questions of dev and test are asked.

    \b
    Example: gnnretrieval feedback simulate my-data --wrong-clicks 0.2
    """
    from gnnretrieval.data import Dataset
    from gnnretrieval.data.runs.reader import read_run
    from gnnretrieval.feedback import simulate_log

    out = out or beside(dataset, "log.jsonl")
    if out.exists() and not overwrite:
        raise InputError(
            "this file exists. Give another --out, or replace it by --overwrite unless it has clicks of real users.",
            out,
        )
    parsed = SimulationSettings.parse(settings_from(SimulationSettings, settings))
    run = None if run_file is None else read_run(run_file)
    rankings = None if run is None else {query: [hit.passage_id for hit in hits] for query, hits in run.items()}
    report = simulate_log(Dataset.open(dataset, qrels, where), out, parsed, rankings=rankings)
    if as_json:
        echo_json(report.as_json())
    else:
        echo(f"{out}\n{report.to_text()}")
    splits = f"--dev-from {report.dev_from} --test-from {report.test_from}"
    echo_next(f"gnnretrieval feedback import {quoted(out)} --passages {quoted(dataset)} {splits}")


@feedback.command()
@click.argument("run", type=PATH)
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Session; may be repeated.")
@click.option("--question", "questions", multiple=True, metavar="TEXT", help="Question; may be repeated.")
def forget(run: Path, sessions: tuple[str, ...], questions: tuple[str, ...]) -> None:
    """Take events out of the store of RUN, the directory of a search that is updated from its clicks.

    The next update is made from scratch, as if they had never been there, and deletes the versions that had them. Until
    then the promoted version is still served.

    \b
    Example: gnnretrieval feedback forget my-run-live --session 8d1f --session 77ac
    Example: gnnretrieval feedback forget my-run-live --question "where is Ada Lovelace"
    """
    from gnnretrieval.nightly import forget_events

    count = forget_events(run, sessions, questions)
    echo(f"{run}: {counted(count, 'event is', 'events are')} forgotten")
    echo_next("gnnretrieval update RECIPE")
