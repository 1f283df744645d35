"""``gnnretrieval verify``."""

from __future__ import annotations

from pathlib import Path

import click

from gnnretrieval.cli.options import PATH
from gnnretrieval.cli.output import echo
from gnnretrieval.errors import GnnRetrievalError


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
        files, which = ("file is", "its directory") if count == 1 else ("files are", "their directories")
        raise GnnRetrievalError(f"{count:,} {files} damaged. Delete {which}, and run the commands that make them.")
    artifacts = "artifact" if checked.artifacts == 1 else "artifacts"
    size = f"{checked.files:,} files, {checked.bytes / 2**20:,.1f} MiB"
    echo(f"{checked.artifacts:,} {artifacts}, {size}: all as they were made")
