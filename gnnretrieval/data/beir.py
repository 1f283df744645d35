"""The BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``, read as streams and written.

Readers accept a byte order mark, either line ending and blank lines, and nothing else that is not the layout: each
fault is one :class:`~gnnretrieval.errors.InputError` with file and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.lines import excerpt, read_lines, require_characters
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError

Metadata = Mapping[str, Any]

QRELS_HEADER = ("query-id", "corpus-id", "score")
HEADER_SCORES = frozenset({"score", "relevance", "rel", "label"})  # third column of the headers seen in the wild
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_UNJUDGEABLE = re.compile(r"[\t\n\r]")


def read_passages(
    path: str | Path, unique: bool = True, allow_empty: bool = False
) -> Iterator[tuple[Passage, Metadata]]:
    """Passages of a ``corpus.jsonl`` with their metadata, in file order.

    Args:
        path: The file: one object a line with ``_id``, ``text`` and, where there are any, ``title`` and ``metadata``.
        unique: Check that no id comes twice, which holds the ids in memory; False for a file checked before.
        allow_empty: Yield passages with neither title nor text too.

    Raises:
        InputError: no such file, not UTF-8, not JSON, a field that is missing or no string, an id that comes twice, a
            passage with neither title nor text, or no passage at all.
    """
    return ((passage, metadata) for _, passage, metadata in numbered_passages(Path(path), unique, allow_empty))


def numbered_passages(path: Path, unique: bool, allow_empty: bool) -> Iterator[tuple[int, Passage, Metadata]]:
    """As :func:`read_passages`, each with its line."""
    for number, record in _records(path, "passage", unique):
        title = record.get("title")
        if title is not None and not isinstance(title, str):
            raise InputError(f"found title {excerpt(title)}, wanted a string: quote it or leave it out.", path, number)
        passage = Passage(record["_id"], (title or "").strip(), record["text"])
        if not allow_empty and not passage.title and not passage.text.strip():
            raise InputError(
                f"passage {passage.id!r} has neither title nor text: give it a text or delete the line.", path, number
            )
        yield number, passage, record.get("metadata") or {}


def read_queries(path: str | Path, unique: bool = True) -> Iterator[tuple[Query, Metadata]]:
    """Queries of a ``queries.jsonl`` with their metadata, in file order.

    Args:
        path: The file: one object a line with ``_id``, ``text`` and, where there is any, ``metadata``.
        unique: Check that no id comes twice, which holds the ids in memory; False for a file checked before.

    Raises:
        InputError: as :func:`read_passages`, and for a query without text.
    """
    return ((query, metadata) for _, query, metadata in numbered_queries(Path(path), unique))


def numbered_queries(path: Path, unique: bool) -> Iterator[tuple[int, Query, Metadata]]:
    """As :func:`read_queries`, each with its line."""
    for number, record in _records(path, "query", unique):
        query = Query(record["_id"], record["text"])
        if not query.text.strip():
            raise InputError(f"query {query.id!r} has an empty text: give it one or delete the line.", path, number)
        yield number, query, record.get("metadata") or {}


def _records(path: Path, what: str, unique: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line, with ``_id`` and ``text`` checked to be strings."""
    seen: set[str] = set()
    number = 0
    for number, line in read_lines(path, f"one {what} a line, as JSON"):
        record = _object(path, number, line, what)
        for key in ("_id", "text"):
            if key not in record:
                raise InputError(
                    f"this {what} has no {key!r}, only {excerpt(list(record))}: add the field.", path, number
                )
            if not isinstance(record[key], str):
                raise InputError(f"found {key!r} {excerpt(record[key])}, wanted a string: quote it.", path, number)
        _check_id(path, number, record["_id"], what)
        if not isinstance(record.get("metadata"), dict | None):
            raise InputError(
                f"found metadata {excerpt(record['metadata'])}, wanted an object: correct it or leave it out.",
                path,
                number,
            )
        if unique:
            if record["_id"] in seen:
                raise _duplicate(path, number, record["_id"], what)
            seen.add(record["_id"])
        yield number, record
    if not number:
        raise InputError(f"this file is empty; wanted one {what} a line, as JSON with '_id' and 'text'.", path)


def _object(path: Path, number: int, line: str, what: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if "\\u" in line:
            require_characters(record, path, number)
    except RecursionError:
        raise InputError("this line is nested too deeply to be read: flatten its metadata.", path, number) from None
    except ValueError as error:
        column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise InputError(
            f"not JSON: {reason}{column}, in {excerpt(line)}; wanted one object a line: correct this line.",
            path,
            number,
        ) from None
    if not isinstance(record, dict):
        raise InputError(
            f"found {excerpt(record)}, wanted a {what} as a JSON object with '_id' and 'text': correct this line.",
            path,
            number,
        )
    return record


def _check_id(path: Path, number: int, id_: str, what: str) -> None:
    if not id_.strip():
        raise InputError(f"this {what} has an empty '_id': give it one.", path, number)
    if _UNJUDGEABLE.search(id_):
        raise InputError(
            f"{what} id {excerpt(id_)} has a tab or line break in it, so no judgement could name it: rename it.",
            path,
            number,
        )


def _duplicate(path: Path, number: int, id_: str, what: str) -> InputError:
    # Lines are not remembered for every id: this pass runs once, when the file is wrong.
    first = next(n for n, line in read_lines(path, what) if json.loads(line)["_id"] == id_)
    return InputError(f"{what} id {id_!r} is already on line {first}: rename or delete one of the two.", path, number)


def read_qrels(
    path: str | Path, query_ids: Container[str] | None = None, passage_ids: Container[str] | None = None
) -> dict[str, dict[str, int]]:
    """Judgements of a ``qrels/<split>.tsv``: relevance by passage id by query id, in order of first appearance.

    The header may be missing. A line that comes twice counts once.

    Args:
        path: The file: ``query-id``, ``corpus-id`` and ``score``, separated by tabs.
        query_ids: The queries there are; a judgement of another is an error. None: not checked.
        passage_ids: The same for passages.

    Raises:
        InputError: no such file, not UTF-8, not three columns, a score that is no integer, an unknown id, two scores
            for one pair, or no judgement at all.
    """
    path = Path(path)
    qrels: dict[str, dict[str, int]] = {}
    for number, qrel in judgements(path):
        for what, id_, known in (("query", qrel.query_id, query_ids), ("passage", qrel.passage_id, passage_ids)):
            if known is not None and id_ not in known:
                raise InputError(
                    f"there is no {what} {id_!r} in the dataset: delete this line or add the {what}.", path, number
                )
        relevance = qrels.setdefault(qrel.query_id, {}).setdefault(qrel.passage_id, qrel.relevance)
        if relevance != qrel.relevance:
            first = next(n for n, other in judgements(path) if other[:2] == qrel[:2])
            raise InputError(
                f"query {qrel.query_id!r} and passage {qrel.passage_id!r} have score {qrel.relevance} here and"
                f" {relevance} on line {first}: delete one of the two.",
                path,
                number,
            )
    if not qrels:
        raise InputError(
            "this split has no judgements; wanted lines of query-id, corpus-id and score: add or delete it.", path
        )
    return qrels


def judgements(path: Path) -> Iterator[tuple[int, Qrel]]:
    """Line number and judgement of each line; errors as :func:`read_qrels`."""
    lines = read_lines(path, "the judgements of a split, three columns separated by tabs")
    for position, (number, line) in enumerate(lines):
        fields = line.split("\t")
        if len(fields) != 3:
            hint = "Are they separated by spaces?" if len(line.split()) == 3 else "Correct this line."
            if len(line.split()) == 4:
                hint = "Is it a TREC qrels file? Leave out its second column."
            raise InputError(
                f"found {len(fields)} columns, wanted three (query-id, corpus-id, score) separated by tabs. {hint}",
                path,
                number,
            )
        query_id, passage_id, score = fields
        if position == 0 and score.strip().casefold() in HEADER_SCORES:
            continue
        if not _INTEGER.fullmatch(score.strip()):
            raise InputError(
                f"found score {excerpt(score)}, wanted an integer (1 is relevant, 0 is not): correct this line.",
                path,
                number,
            )
        yield number, Qrel(query_id, passage_id, int(score.strip()))  # int() strips less


def write_passages(path: str | Path, passages: Iterable[tuple[Passage, Metadata]]) -> int:
    """Write passages with their metadata (left out where empty) to ``path``; returns their count."""
    return _write_jsonl(
        path, (({"_id": passage.id, "title": passage.title, "text": passage.text}, data) for passage, data in passages)
    )


def write_queries(path: str | Path, queries: Iterable[tuple[Query, Metadata]]) -> int:
    """Write queries with their metadata (left out where empty) to ``path``; returns their count."""
    return _write_jsonl(path, (({"_id": query.id, "text": query.text}, data) for query, data in queries))


def _write_jsonl(path: str | Path, records: Iterable[tuple[dict[str, str], Metadata]]) -> int:
    count = 0
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for record, metadata in records:
            line = {**record, "metadata": dict(metadata)} if metadata else record
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count


def write_qrels(path: str | Path, qrels: Iterable[Qrel]) -> int:
    """Write judgements, under the header, to ``path`` (its folder is made where missing); returns their count."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(QRELS_HEADER) + "\n")
        for qrel in qrels:
            file.write(f"{qrel.query_id}\t{qrel.passage_id}\t{qrel.relevance}\n")
            count += 1
    return count
