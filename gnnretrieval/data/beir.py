"""Read and write the BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

Readers are streams. They accept a byte order mark, either line ending and blank lines; any other deviation from the
layout is an :class:`~gnnretrieval.errors.InputError` with file and line.
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
JUDGEMENTS = "the judgements of a split, three columns separated by tabs"  # the expected content, for errors


def read_passages(
    path: str | Path, unique: bool = True, allow_empty: bool = False
) -> Iterator[tuple[Passage, Metadata]]:
    """Passages of a ``corpus.jsonl`` with their metadata, in file order.

    Args:
        path: The file: one object per line with ``_id``, ``text``, and optionally ``title`` and ``metadata``.
        unique: Check that no id is repeated, which holds the ids in memory; False for a file that was checked before.
        allow_empty: Also yield passages with neither title nor text.

    Raises:
        InputError: the file is missing, not UTF-8 or not JSON, a field is missing or not a string, an id is repeated, a
            passage has neither title nor text, or there is no passage.
    """
    return ((passage, metadata) for _, passage, metadata in numbered_passages(Path(path), unique, allow_empty))


def numbered_passages(path: Path, unique: bool, allow_empty: bool) -> Iterator[tuple[int, Passage, Metadata]]:
    """Line number, passage and metadata of each passage; see :func:`read_passages`."""
    for number, record in _records(path, "passage", unique, allow_empty):
        title = (record.get("title") or "").strip()
        yield number, Passage(record["_id"], title, record["text"]), record.get("metadata") or {}


def read_queries(path: str | Path, unique: bool = True) -> Iterator[tuple[Query, Metadata]]:
    """Queries of a ``queries.jsonl`` with their metadata, in file order.

    Args:
        path: The file: one object per line with ``_id``, ``text``, and optionally ``metadata``.
        unique: Check that no id is repeated, which holds the ids in memory; False for a file that was checked before.

    Raises:
        InputError: see :func:`read_passages`; or a query has no text.
    """
    return ((query, metadata) for _, query, metadata in numbered_queries(Path(path), unique))


def numbered_queries(path: Path, unique: bool) -> Iterator[tuple[int, Query, Metadata]]:
    """Line number, query and metadata of each query; see :func:`read_queries`."""
    for number, record in _records(path, "query", unique):
        yield number, Query(record["_id"], record["text"]), record.get("metadata") or {}


def _records(path: Path, what: str, unique: bool, allow_empty: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and checked object of each line."""
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
                # Line numbers of ids are not stored: only after an error, a second pass looks for one.
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

    The header may be missing. A repeated line counts once.

    Args:
        path: The file: ``query-id``, ``corpus-id`` and ``score``, separated by tabs.
        query_ids: Known query ids; a judgement of another query is an error. None: not checked.
        passage_ids: The same for passages.

    Raises:
        InputError: the file is missing or not UTF-8, a line does not have three columns, a score is not an integer, an
            id is unknown, a pair has two different scores, or there is no judgement.
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
    """Line number and judgement of each line; for errors see :func:`read_qrels`."""
    lines = read_lines(path, JUDGEMENTS)
    for position, (number, line) in enumerate(lines):
        qrel = judgement_of(line, is_first=position == 0)
        if isinstance(qrel, Fault):
            raise InputError(qrel.says, path, number)
        if qrel is not None:
            yield number, qrel


def write_passages(path: str | Path, passages: Iterable[tuple[Passage, Metadata]]) -> int:
    """Write passages and their metadata, if not empty, to ``path``; returns the number of passages."""
    return _write_jsonl(
        path, (({"_id": passage.id, "title": passage.title, "text": passage.text}, data) for passage, data in passages)
    )


def write_queries(path: str | Path, queries: Iterable[tuple[Query, Metadata]]) -> int:
    """Write queries and their metadata, if not empty, to ``path``; returns the number of queries."""
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
    """Write judgements with a header to ``path``, and make its folder if needed; returns the number of judgements."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(QRELS_HEADER) + "\n")
        for qrel in qrels:
            file.write(f"{qrel.query_id}\t{qrel.passage_id}\t{qrel.relevance}\n")
            count += 1
    return count
