"""Faults of lines in the BEIR layout: the readers refuse them, and the inspection lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.records import Qrel
from gnnretrieval.errors import counted

_HEADER_SCORES = frozenset({"score", "relevance", "rel", "label"})  # third column of common headers
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
UNJUDGEABLE = re.compile(r"[\t\n\r]")  # characters that an id in a file of judgements cannot have


class Fault(NamedTuple):
    """A fault of a line.

    Attributes:
        kind: Two or three words, the same for all faults of a kind.
        says: A sentence: what was found, what was wanted, what to do.
    """

    kind: str
    says: str


def object_of(line: str, what: str) -> dict[str, Any] | Fault:
    """The JSON object on a line, or its fault; ``what`` is ``passage`` or ``query``, for messages."""
    try:
        record = json.loads(line)
        if "\\u" in line:
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Fault(
            "half a character",
            "this line has half of a surrogate pair (\\ud800 to \\udfff), which is no character: remove it.",
        )
    except RecursionError:
        return Fault("not JSON", "this line is nested too deeply to be read: flatten its metadata.")
    except ValueError as error:
        column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return Fault(
            "not JSON",
            f"not JSON: {reason}{column}, in {excerpt(line)}; wanted one object per line: correct this line.",
        )
    if not isinstance(record, dict):
        return Fault(
            "not JSON",
            f"found {excerpt(record)}, wanted a {what} as a JSON object with '_id' and 'text': correct this line.",
        )
    return record


def faults_of(record: Mapping[str, Any], what: str, allow_empty: bool = False) -> Iterator[Fault]:
    """Faults of a passage or query, seen without the others.

    Args:
        record: The object on its line.
        what: ``passage`` or ``query``.
        allow_empty: Whether a passage may have neither title nor text.
    """
    for key in ("_id", "text"):
        if key not in record:
            yield Fault("missing field", f"this {what} has no {key!r}, only {excerpt(list(record))}: add the field.")
        elif not isinstance(record[key], str):
            yield Fault("wrong type", f"found {key!r} {excerpt(record[key])}, wanted a string: quote it.")
    id_, text = record.get("_id"), record.get("text")
    if isinstance(id_, str):
        if not id_.strip():
            yield Fault("unusable id", f"this {what} has an empty '_id': give it one.")
        elif UNJUDGEABLE.search(id_):
            yield Fault(
                "unusable id",
                f"{what} id {excerpt(id_)} has a tab or line break in it, so no judgement could name it: rename it.",
            )
    if not isinstance(record.get("metadata"), dict | None):
        yield Fault(
            "wrong type",
            f"found metadata {excerpt(record['metadata'])}, wanted an object: correct it or leave it out.",
        )
    if what == "query":
        if isinstance(text, str) and not text.strip():
            yield Fault("empty text", f"query {excerpt(id_)} has an empty text: give it one or delete the line.")
        return
    title = record.get("title")
    if not isinstance(title, str | None):
        yield Fault("wrong type", f"found title {excerpt(title)}, wanted a string: quote it or leave it out.")
    elif isinstance(text, str) and not allow_empty and not (title or "").strip() and not text.strip():
        yield Fault(
            "empty text", f"passage {excerpt(id_)} has neither title nor text: give it a text or delete the line."
        )


def repeated_id(what: str, id_: str, first: int) -> Fault:
    """The fault of an id that is also on line ``first``."""
    return Fault("repeated id", f"{what} id {id_!r} is already on line {first}: rename or delete one of the two.")


def judgement_of(line: str, is_first: bool) -> Qrel | Fault | None:
    """The judgement on a line, or its fault; None for a header.

    Args:
        line: The line without its ending.
        is_first: Whether it is the first line of the file, which may be a header.
    """
    fields = line.split("\t")
    if len(fields) != 3:
        hint = "Are they separated by spaces?" if len(line.split()) == 3 else "Correct this line."
        if len(line.split()) == 4:
            hint = "Is it a TREC qrels file? Leave out its second column."
        return Fault(
            "wrong columns",
            f"found {counted(len(fields), 'column')}, wanted three (query-id, corpus-id, score) between tabs. {hint}",
        )
    query_id, passage_id, score = fields
    if is_first and score.strip().casefold() in _HEADER_SCORES:
        return None
    if not _INTEGER.fullmatch(score.strip()):
        return Fault(
            "score is no integer",
            f"found score {excerpt(score)}, wanted an integer (1 is relevant, 0 is not): correct this line.",
        )
    return Qrel(query_id, passage_id, int(score.strip()))  # int() strips less


def unknown_id(what: str, id_: str) -> Fault:
    """The fault of a judgement of a passage or query that is not in the dataset."""
    return Fault(f"unknown {what}", f"there is no {what} {id_!r} in the dataset: delete this line or add the {what}.")


def contradiction(qrel: Qrel, other: int, first: int) -> Fault:
    """The fault of a judgement of a pair that has the score ``other`` on line ``first``."""
    return Fault(
        "contradicting judgements",
        f"query {qrel.query_id!r} and passage {qrel.passage_id!r} have score {qrel.relevance} here and"
        f" {other} on line {first}: delete one of the two.",
    )


def no_records(what: str) -> Fault:
    """The fault of an empty file of passages or queries."""
    return Fault("empty file", f"this file is empty; wanted one {what} per line, as JSON with '_id' and 'text'.")


def no_judgements() -> Fault:
    """The fault of a split without judgements."""
    return Fault(
        "empty file",
        "this split has no judgements; wanted lines of query-id, corpus-id and score: add or delete it.",
    )
