"""Reader of BEIR's ``corpus.jsonl``, ``queries.jsonl`` and qrels, plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gnnretrieval.data import beir
from gnnretrieval.data.formats.parsed import FileRecord


def read_passages(path: Path, split: str) -> Iterator[FileRecord]:
    """``_id``, ``title``, ``text`` and ``metadata``, as JSON lines."""
    for number, passage, metadata in beir.numbered_passages(path, unique=False, allow_empty=True):
        yield FileRecord(passage, number, metadata)


def read_queries(path: Path, split: str) -> Iterator[FileRecord]:
    """``_id``, ``text`` and ``metadata``, as JSON lines."""
    for number, query, metadata in beir.numbered_queries(path, unique=False):
        yield FileRecord(query, number, metadata)


def read_qrels(path: Path, split: str) -> Iterator[FileRecord]:
    """``query-id \\t corpus-id \\t score``."""
    for number, qrel in beir.judgements(path):
        yield FileRecord(qrel, number)
