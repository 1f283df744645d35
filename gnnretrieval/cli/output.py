"""All that the command line prints goes through here, so that no text of a dataset commands the terminal."""

from __future__ import annotations

import json
from typing import Any

import click

from gnnretrieval.progress import printable


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print ``text`` to standard output, or to standard error; control characters are shown, not sent."""
    click.echo(printable(text), err=err, nl=nl)


def echo_next(command: str) -> None:
    """Print the command that usually comes next, to standard error."""
    echo(f"Next: {command}", err=True)


def echo_json(value: Any) -> None:
    """Print JSON to standard output."""
    echo(json.dumps(value, indent=1, ensure_ascii=False))
