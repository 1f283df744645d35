"""``gnnretrieval verify``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH
from gnnretrieval.cli.output import echo
from gnnretrieval.errors import GnnRetrievalError, counted


@click.command()
@click.argument("paths", metavar="PATH...", type=PATH, nargs=-1, required=True)
def verify(paths: tuple[Path, ...]) -> None:
    """Check that artifacts hold the bytes that were written: the sha256 of each file, by their meta.json.

    PATH is an artifact (a graph, a model, an index, …) or a run's directory, of which every artifact is checked. Each
    damaged file is printed as one line, and the exit code is then 1.

    \b
    Example: gnnretrieval verify work/index
    Example: gnnretrieval verify graphs/docstrings
    """
    from gnnretrieval.storage.verifying import verify as verified

    checked = verified(paths)
    for line in checked.damaged:
        echo(line)
    if count := len(checked.damaged):
        damaged = counted(count, "file is damaged. Delete its directory", "files are damaged. Delete their directories")
        raise GnnRetrievalError(f"{damaged}, and run the commands that make them.")
    size = f"{counted(checked.files, 'file')}, {checked.bytes / 2**20:,.1f} MiB"
    echo(f"{counted(checked.artifacts, 'artifact')}, {size}: all as they were made")
