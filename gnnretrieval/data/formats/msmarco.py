"""Reader of MS MARCO passage ranking: ``collection.tsv``, ``queries.*.tsv``, triples and top1000 files.

Layout: https://microsoft.github.io/msmarco/Datasets.html. Its qrels are TREC qrels (:mod:`.trec`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from gnnretrieval.data.formats.columns import plain_rows
from gnnretrieval.data.formats.parsed import FileRecord, Negative, id_of
from gnnretrieval.data.records import Passage, Qrel, Query


def read_collection(path: Path, split: str) -> Iterator[FileRecord]:
    """``pid \\t passage``."""
    for number, (id_, text) in plain_rows(path, "pid and passage", 2):
        yield FileRecord(Passage(id_of(id_, "passage", path, number), "", text), number)


def read_queries(path: Path, split: str) -> Iterator[FileRecord]:
    """``qid \\t query``."""
    for number, (id_, text) in plain_rows(path, "qid and query", 2):
        yield FileRecord(Query(id_of(id_, "query", path, number), text), number)


def read_id_triples(path: Path, split: str) -> Iterator[FileRecord]:
    """``qid \\t pid of the positive \\t pid of the negative``."""
    for number, fields in plain_rows(path, "qid, positive pid and negative pid", 3):
        query = id_of(fields[0], "query", path, number)
        positive, negative = (id_of(field, "passage", path, number) for field in fields[1:])
        yield FileRecord(Qrel(query, positive, 1), number)
        yield FileRecord(Negative(query, negative, "triple"), number)


def read_triples(path: Path, split: str) -> Iterator[FileRecord]:
    """``query \\t positive passage \\t negative passage``: texts only; their ids are hashes (:func:`text_id`)."""
    for number, (query, positive, negative) in plain_rows(path, "query, positive and negative passage", 3):
        query_id, *ids = (text_id(text) for text in (query, positive, negative))
        yield FileRecord(Query(query_id, query), number)
        for id_, text in zip(ids, (positive, negative), strict=True):
            yield FileRecord(Passage(id_, "", text), number)
        yield FileRecord(Qrel(query_id, ids[0], 1), number)
        yield FileRecord(Negative(query_id, ids[1], "triple"), number)


def read_top1000(path: Path, split: str) -> Iterator[FileRecord]:
    """``qid \\t pid \\t query \\t passage``: unjudged candidates of a query."""
    for number, (query, passage, query_text, passage_text) in plain_rows(path, "qid, pid, query and passage", 4):
        query_id, passage_id = id_of(query, "query", path, number), id_of(passage, "passage", path, number)
        yield FileRecord(Query(query_id, query_text), number)
        yield FileRecord(Passage(passage_id, "", passage_text), number)
        yield FileRecord(Negative(query_id, passage_id, "candidate"), number)


def text_id(text: str) -> str:
    """An id for a text without one: the first 16 hexadecimal digits of its sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
