"""Trials of what an attacker, a crash or an operator's mistake can do to the whole system.

    .venv/bin/python benchmarks/faults.py --work DIRECTORY

Runs every trial (``faults_*.py`` beside this script), or those that ``--only`` names, and writes results/faults.json
and results/faults.md. Results of trials that are not run again are kept. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
TRIALS = ("kills", "power_loss", "sequences", "connections", "reloads", "mutations")  # faults_NAME.py each


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    parts = [results["trials"][name] for name in TRIALS if name in results["trials"]]
    failures = sum(part["failures"] for part in parts)
    lines = [
        "# Faults",
        "",
        "Regenerate: `.venv/bin/python benchmarks/faults.py --work DIRECTORY`",
        "",
        f"{sum(part['tried'] for part in parts):,} trials, **{failures:,} failures**.",
    ]
    for part in parts:
        header = list(part["rows"][0])
        lines += ["", f"## {part['title']}", "", part["done"], ""]
        lines += ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
        lines += ["| " + " | ".join(_cell(row[name]) for name in header) + " |" for row in part["rows"]]
        count = f" --trials {part['asked']}" if part["asked"] else ""
        revision = part["git_revision"] or "unknown"
        lines += [
            "",
            f"`--only {part['name']}{count}`: {part['minutes']} minutes, {part['when']}, revision {revision}.",
        ]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


@click.command()
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the trials write.")
@click.option("--only", "names", type=click.Choice(TRIALS), multiple=True, help="Run these; may be given again.")
@click.option(
    "--trials", type=click.IntRange(1), help="Trials of each kind; without it, the full number, which takes hours."
)
def main(work: Path, names: tuple[str, ...], trials: int | None) -> None:
    """Run the trials and write the page."""
    file = RESULTS / "faults.json"
    results: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {"trials": {}}
    failures = 0
    for name in names or TRIALS:
        begun = time.monotonic()
        part = importlib.import_module(f"faults_{name}").run(work / name, trials)
        failures += part["failures"]
        results["trials"][name] = {
            **part,
            "name": name,
            "asked": trials,
            "minutes": round((time.monotonic() - begun) / 60, 1),
            "when": datetime.now(UTC).date().isoformat(),
            "git_revision": git_revision(),
            "versions": library_versions(),
        }
        write_json(file, results)
        (RESULTS / "faults.md").write_text(markdown(results), encoding="utf-8")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
