"""The BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``, read as streams and written.

Readers accept a byte order mark, either line ending and blank lines, and nothing else that is not the layout: each
fault is one :class:`~gnnretrieval.errors.InputError` with file and line.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.faults import (
    Fault,
    contradiction,
    faults_of,
    judgement_of,
    no_judgements,
    no_records,
    object_of,
    repeated_id,
    unknown_id,
)
from gnnretrieval.data.lines import read_lines
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError

Metadata = Mapping[str, Any]

QRELS_HEADER = ("query-id", "corpus-id", "score")
JUDGEMENTS = "the judgements of a split, three columns separated by tabs"  # what is wanted, for errors


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
    for number, record in _records(path, "passage", unique, allow_empty):
        title = (record.get("title") or "").strip()
        yield number, Passage(record["_id"], title, record["text"]), record.get("metadata") or {}


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
        yield number, Query(record["_id"], record["text"]), record.get("metadata") or {}


def _records(path: Path, what: str, unique: bool, allow_empty: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line, checked."""
    seen: set[str] = set()
    number = 0
    for number, line in read_lines(path, f"one {what} a line, as JSON"):
        record = object_of(line, what)
        if isinstance(record, Fault):
            raise InputError(record.says, path, number)
        for fault in faults_of(record, what, allow_empty):
            raise InputError(fault.says, path, number)
        if unique:
            if record["_id"] in seen:
                # Lines are not remembered for every id: this pass runs once, when the file is wrong.
                first = next(n for n, other in read_lines(path, what) if json.loads(other)["_id"] == record["_id"])
                raise InputError(repeated_id(what, record["_id"], first).says, path, number)
            seen.add(record["_id"])
        yield number, record
    if not number:
        raise InputError(no_records(what).says, path)


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
                raise InputError(unknown_id(what, id_).says, path, number)
        relevance = qrels.setdefault(qrel.query_id, {}).setdefault(qrel.passage_id, qrel.relevance)
        if relevance != qrel.relevance:
            first = next(n for n, other in judgements(path) if other[:2] == qrel[:2])
            raise InputError(contradiction(qrel, relevance, first).says, path, number)
    if not qrels:
        raise InputError(no_judgements().says, path)
    return qrels


def judgements(path: Path) -> Iterator[tuple[int, Qrel]]:
    """Line number and judgement of each line; errors as :func:`read_qrels`."""
    lines = read_lines(path, JUDGEMENTS)
    for position, (number, line) in enumerate(lines):
        found = judgement_of(line, is_first=position == 0)
        if isinstance(found, Fault):
            raise InputError(found.says, path, number)
        if found is not None:
            yield number, found


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
