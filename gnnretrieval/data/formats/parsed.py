"""What readers yield."""

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
        kind: The file's own word: ``negative``, ``hard_negative`` (DPR), ``triple`` or ``candidate`` (MS MARCO).
    """

    query_id: str
    passage_id: str
    kind: str


class Found(NamedTuple):
    """A record of a file.

    Attributes:
        record: What it is.
        line: Where it began, from 1; None where the format has no lines (Parquet: the row).
        metadata: What else the file says of it.
        where: Its place, where a line says too little (SQuAD's JSON): ``data[3].paragraphs[0]``.
    """

    record: Passage | Query | Qrel | Negative
    line: int | None
    metadata: Mapping[str, Any] = {}
    where: str = ""


Reader = Callable[[Path, str], Iterator[Found]]


def id_of(value: str, what: str, path: Path, line: int | None) -> str:
    """``value`` as an id, or an error where no judgement could name it."""
    id_ = value.strip()
    if not id_:
        raise InputError(f"this {what} has an empty id: give it one.", path, line)
    if "\t" in id_ or "\n" in id_ or "\r" in id_:
        raise InputError(f"{what} id {excerpt(id_)} has a tab or line break in it: rename it.", path, line)
    return id_


def relevance_of(value: str, path: Path, line: int | None) -> int:
    """``value`` as a relevance."""
    text = value.strip()
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InputError(f"found relevance {excerpt(value)}, wanted an integer: correct this line.", path, line)
    return int(text)
