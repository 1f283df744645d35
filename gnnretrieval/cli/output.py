"""All that the command line prints goes through here, so that no text of a dataset commands the terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.progress import printable

if TYPE_CHECKING:
    from gnnretrieval.shards import Shard


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print ``text`` to standard output, or to standard error; control characters are shown, not sent."""
    click.echo(printable(text), err=err, nl=nl)


def quoted(path: Path | str) -> str:
    """A path as a word of a command that can be pasted into a shell."""
    return shlex.quote(str(path))


def echo_next(command: str) -> None:
    """Print the command that usually comes next, to standard error."""
    echo(f"Next: {command}", err=True)


def echo_json(value: Any) -> None:
    """Print JSON to standard output."""
    echo(json.dumps(value, indent=1, ensure_ascii=False))


def echo_shard(files: Sequence[Path], shard: Shard, storage: str | None) -> None:
    """Print what a shard wrote, and how to go on."""
    for file in files:
        echo(str(file) if storage is None else f"{storage}: {file.name}")
    if not files:
        echo(f"nothing to do: there are fewer than {shard.number + 1} shards")
    echo_next(f"after all shards, the same command with --shards {shard.total} instead of --shard joins them")
