"""``gnnretrieval update`` and ``gnnretrieval rollback``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH, columns_option, device_option, json_option
from gnnretrieval.cli.output import echo, echo_json, echo_next, quoted
from gnnretrieval.progress import say


@click.command()
@click.argument("recipe", type=PATH)
@click.option("--events", "logs", multiple=True, type=PATH, metavar="LOG", help="Event log; may be repeated.")
@click.option("--data", type=PATH, help="Dataset or file of tonight's passages, instead of the recipe's.")
@click.option("--out", type=PATH, help="Directory of the search.  [default: beside the recipe, NAME-live]")
@columns_option
@click.option("--from-scratch", is_flag=True, help="Train from scratch, also if the labels have hardly grown.")
@click.option("--dry-run", is_flag=True, help="Count what is new, and write nothing.")
@click.option("--html", type=PATH, help="Write the report as a page that opens offline.")
@device_option
@json_option
def update(
    recipe: Path,
    logs: tuple[Path, ...],
    data: Path | None,
    out: Path | None,
    columns: dict[str, str],
    from_scratch: bool,
    dry_run: bool,
    html: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Update a search from its event logs, and promote a new model only if it ranks better by evidence.

    Run it every night: new events go into a store, labels are judged again, training goes on from the promoted model,
    and the gate compares both on the newest questions. If the new model is refused, new passages are served by the old
    one. Logs may overlap. After a kill, the same command goes on. A server with --watch takes the promoted version.

    \b
    Example: gnnretrieval update my-run.toml --events today.jsonl
    Example: gnnretrieval update my-run.toml --events log.csv --dry-run
    """
    from gnnretrieval.nightly import update_search
    from gnnretrieval.nightly.updating import live_directory
    from gnnretrieval.pages.html import require_page_place, write_page

    if html is not None:
        require_page_place(html)
    how = {"columns": columns, "from_scratch": from_scratch, "dry_run": dry_run}
    report = update_search(recipe, logs, out=out, data=data, device=device, **how)  # type: ignore[arg-type]
    if html is not None:
        write_page(report.to_html(), html)
        say(f"{html}: the page")
    if as_json:
        echo_json(report.as_json())
    else:
        echo(report.to_text())
    if report.outcome == "first version":
        echo_next(f"gnnretrieval serve {quoted(out or live_directory(recipe))} --watch 10")


@click.command()
@click.argument("run", type=PATH)
@click.argument("version", type=click.IntRange(1), required=False)
@click.option(
    "--end", is_flag=True, help="Let updates promote new models again; the promoted version stays until then."
)
def rollback(run: Path, version: int | None, end: bool) -> None:
    """Promote an earlier VERSION of RUN in one step (default: the one before the promoted that was not given up).

    Updates go on with new events and passages, but promote no new model until --end.

    \b
    Example: gnnretrieval rollback my-run-live
    Example: gnnretrieval rollback my-run-live 12
    Example: gnnretrieval rollback my-run-live --end
    """
    from gnnretrieval.nightly import end_rollback, roll_back

    if end and version is not None:
        raise click.UsageError("--end takes no VERSION: the promoted one stays until the next update.")
    if end:
        end_rollback(run)
        echo(f"{run}: the next update may promote a new model again")
        return
    echo(f"{run}: version {roll_back(run, version)} is promoted")
    echo(f"No update promotes a new model until: gnnretrieval rollback {run} --end", err=True)
