"""The records that readers yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError


class Negative(NamedTuple):
    """A passage that a file offers as a negative of a query.

    Attributes:
        query_id: The query.
        passage_id: The passage.
        kind: The format's word: ``negative``, ``hard_negative`` (DPR), ``triple`` or ``candidate`` (MS MARCO).
    """

    query_id: str
    passage_id: str
    kind: str


class FileRecord(NamedTuple):
    """A record of a file, and its place in it.

    Attributes:
        record: The record.
        line: Its first line, from 1; in Parquet its row; None where the format has no lines.
        metadata: Its other fields.
        where: Its place where there is no line number, as in SQuAD's JSON: ``data[3].paragraphs[0]``.
    """

    record: Passage | Query | Qrel | Negative
    line: int | None
    metadata: Mapping[str, Any] = {}
    where: str = ""


Reader = Callable[[Path, str], Iterator[FileRecord]]


def id_of(value: str, what: str, path: Path, line: int | None) -> str:
    """``value`` as an id.

    Raises:
        InputError: it is empty, or has a tab or line break, so that no file of judgements can have it.
    """
    id_ = value.strip()
    if not id_:
        raise InputError(f"this {what} has an empty id: give it one.", path, line)
    if "\t" in id_ or "\n" in id_ or "\r" in id_:
        raise InputError(f"{what} id {excerpt(id_)} has a tab or line break in it: rename it.", path, line)
    return id_


def relevance_of(value: str, path: Path, line: int | None) -> int:
    """``value`` as a relevance.

    Raises:
        InputError: it is not an integer.
    """
    text = value.strip().removesuffix(".0")  # as pandas writes a column that had a gap
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InputError(f"found relevance {excerpt(value)}, wanted an integer: correct this line.", path, line)
    return int(text)
