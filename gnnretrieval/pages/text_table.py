"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def in_columns(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows of cells as lines with aligned columns.

    Args:
        rows: The rows, each with one cell per column.
        left: Number of columns, the first ones, that are aligned to the left; the others, numbers, to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([*map(str.ljust, row[:left], widths), *map(str.rjust, row[left:], widths[left:])]).rstrip()
        for row in rows
    ]
