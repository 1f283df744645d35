"""Rows of tab- or comma-separated files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from gnnretrieval.data.lines import excerpt, read_lines, require_short
from gnnretrieval.errors import InputError, counted


def plain_rows(path: Path, wanted: str, *widths: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and columns of each line of a file with tabs between columns and no quoting.

    Args:
        path: The file.
        wanted: The expected content, for errors.
        widths: Accepted numbers of columns.
    """
    for number, line in read_lines(path, wanted):
        fields = line.split("\t")
        if len(fields) not in widths:
            hint = " Are they separated by spaces?" if len(fields) == 1 and " " in line else ""
            raise InputError(
                f"found {counted(len(fields), 'column')}, wanted {' or '.join(map(str, widths))} separated by tabs "
                f"({wanted}): {excerpt(line)}.{hint}",
                path,
                number,
            )
        yield number, fields


def quoted_rows(path: Path, wanted: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """First line number and columns of each row of a CSV file; quoted fields may have delimiters and line breaks."""
    csv.field_size_limit(sys.maxsize)
    line_number = row_length = 0

    def lines() -> Iterator[str]:
        nonlocal line_number, row_length
        for number, line in read_lines(path, wanted, keep_all=True):
            line_number = number
            row_length += len(line)
            require_short(path, first, row_length)
            yield line

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        first, row_length = line_number + 1, 0
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"this row cannot be read ({error}): a field with a quote or a line break must be quoted, and "
                'quotes in it doubled ("").',
                path,
                first,
            ) from None
        if row and any(field.strip() for field in row):
            yield first, row
