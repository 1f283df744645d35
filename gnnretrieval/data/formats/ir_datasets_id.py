"""Reader of datasets of the ``ir_datasets`` package, by id: ``beir/scifact/test``, ``msmarco-passage/dev/small``.

The package downloads missing files. It is an extra (``gnnretrieval[ir-datasets]``), imported only for an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from textwrap import shorten
from typing import Any

from gnnretrieval.data.formats.parsed import FileRecord, id_of
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import GnnRetrievalError, InputError, nearest
from gnnretrieval.platform.extras import extra

_SKIPPED = object()
_EXCERPT = 160  # characters shown of the package's error
_RECORDS = {"docs": "document", "queries": "query", "qrels": "judgement"}


def read_documents(path: Path, split: str) -> Iterator[FileRecord]:
    """Documents by their ``title`` and ``text``, or else all of their text; other fields are metadata."""
    for number, document in _each(path, "docs"):
        fields = document._asdict()
        id_ = id_of(str(fields.pop("doc_id")), "passage", path, number)
        title = fields.pop("title") if _is_text(fields.get("title")) and _is_text(fields.get("text")) else ""
        text = _text(document, fields, "text")
        yield FileRecord(Passage(id_, title.strip(), text), number, _metadata(fields))


def read_judged(path: Path, split: str) -> Iterator[FileRecord]:
    """Queries and judgements. A query's text is its ``text``, or ``title`` in TREC topics; the rest is metadata."""
    opened = open_id(path)
    for number, query in _each(path, "queries") if opened.has_queries() else ():
        fields = query._asdict()
        id_ = id_of(str(fields.pop("query_id")), "query", path, number)
        yield FileRecord(Query(id_, _text(query, fields, "text", "title")), number, _metadata(fields))
    for number, qrel in _each(path, "qrels") if opened.has_qrels() else ():
        yield FileRecord(Qrel(str(qrel.query_id), str(qrel.doc_id), int(qrel.relevance)), number)


def open_id(path: Path) -> Any:
    """The dataset of an id; nothing is downloaded yet.

    Raises:
        GnnRetrievalError: the package is not installed.
        InputError: the id is unknown.
    """
    ir_datasets = extra("ir_datasets", "ir-datasets", f"{path}: an id of ir_datasets")
    id_ = path.as_posix()
    try:
        return ir_datasets.load(id_)
    except KeyError:
        hint = nearest(id_, ir_datasets.registry)
        raise InputError(f"ir_datasets {ir_datasets.__version__} has no dataset with this id.{hint}", path) from None


def documents_of(path: Path) -> Path | None:
    """The shortest id with the same documents as ``path``; None where it has no documents."""
    import ir_datasets

    opened = open_id(path)
    return Path(ir_datasets.docs_parent_id(path.as_posix())) if opened.has_docs() else None


def identity(path: Path) -> Mapping[str, str]:
    """The values that identify the content of an id without reading it: the id and the package's version."""
    import ir_datasets

    return {"id": path.as_posix(), "ir_datasets": ir_datasets.__version__}


def _each(path: Path, what: str) -> Iterator[tuple[int, Any]]:
    """Number (from 1) and record of ``docs``, ``queries`` or ``qrels``; the package's errors become an InputError."""
    number = 0
    try:
        records = iter(getattr(open_id(path), f"{what}_iter")())
        while True:
            try:
                record = next(records)
            except StopIteration:
                return
            number += 1
            yield number, record
    except (GnnRetrievalError, GeneratorExit):
        raise
    except Exception as error:  # a download, a parser or a missing package may raise anything
        message = shorten(str(error), _EXCERPT, placeholder="…")
        raise InputError(
            f"ir_datasets cannot give {_RECORDS[what]} {number + 1} ({type(error).__name__}: {message}). Check the "
            "network, or see at https://ir-datasets.com what this dataset needs, and run the same command again.",
            path,
        ) from None


def _text(record: Any, fields: dict[str, Any], *names: str) -> str:
    """The text of a record, removed from its fields."""
    for name in names:
        if _is_text(fields.get(name)):
            return str(fields.pop(name))
    return str(record.default_text())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _metadata(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: _as_json(value) for key, value in fields.items() if value not in (None, "")}
    return {key: value for key, value in values.items() if value is not _SKIPPED}


def _as_json(value: Any) -> Any:
    """A field as a JSON value; raw bytes, such as the HTML of a page, are skipped."""
    if hasattr(value, "_asdict"):
        return _metadata(value._asdict())
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return _metadata({str(key): item for key, item in value.items()})
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [item for item in map(_as_json, value) if item is not _SKIPPED]
    return _SKIPPED
