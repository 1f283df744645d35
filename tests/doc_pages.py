"""The fenced blocks of the documentation's pages."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if not {"_build", "notebooks", "reference"} & set(path.relative_to(ROOT).parts)
    ),
]
NOTEBOOKS = sorted(path for path in (ROOT / "docs" / "notebooks").glob("*.md") if path.stem != "index")
_NOTE = re.compile(r"<!-- (not run|file|needs): (.+?) -->")


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        line: Where it begins in the page, from 1.
        language: The first word behind the fence.
        text: What is inside.
        note: What the comment right before it says: ``not run``, ``file`` or ``needs``, or the empty string.
        of_note: The reason, the file's name, or what it needs.
    """

    line: int
    language: str
    text: str
    note: str
    of_note: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found, note = [], ("", "")
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block" and (match := _NOTE.search(token.content)):
            note = (match[1], match[2])
        elif token.type == "fence" and token.map is not None:
            language = token.info.split()[0] if token.info.strip() else ""
            found.append(Block(token.map[0] + 1, language, textwrap.dedent(token.content), *note))
            note = ("", "")
        elif token.type in ("inline", "table_open"):
            note = ("", "")
    return found


def commands(text: str) -> list[str]:
    """The commands of a block: lines, joined where they end with a backslash, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
