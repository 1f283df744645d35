"""Help texts of commands as pages: they are plain text, and their examples are code."""

from __future__ import annotations

import click
from sphinx.application import Sphinx

_EXAMPLE = "Example: "


def _describe(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Escape RST's signs, and set examples as commands."""
    described: list[str] = []
    example = False
    for line in (one.removeprefix("| ") for one in lines):
        if line.startswith(_EXAMPLE):
            described += ([] if example else ["", ".. code-block:: bash", ""]) + [f"   {line.removeprefix(_EXAMPLE)}"]
            example = True
        elif example and line.startswith(" "):
            described.append(f"   {line}")
        else:
            example = False
            described.append(_plain(line))
    lines[:] = described


def _options(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Escape RST's signs in what an option does."""
    lines[:] = [line if line.lstrip().startswith((".. ", ":")) else _plain(line) for line in lines]


def _plain(line: str) -> str:
    for sign in "\\*|`":
        line = line.replace(sign, f"\\{sign}")
    return line


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("sphinx-click-process-description", _describe)
    app.connect("sphinx-click-process-options", _options)
    return {"parallel_read_safe": True}
