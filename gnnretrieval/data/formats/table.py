"""Reader of tables with named columns: TSV, CSV and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnretrieval.data.formats.columns import quoted_rows
from gnnretrieval.data.formats.parsed import FileRecord, id_of, relevance_of
from gnnretrieval.data.lines import excerpt, require_characters
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError, counted
from gnnretrieval.platform.extras import extra

PARQUET = {".parquet", ".pq"}
_ROWS = 4096
_SHORT = 40  # longest column name that an error shows unquoted
_ID = ("_id", "id")
_PASSAGE_ID = ("passage_id", "passage-id", "pid", "docid", "doc_id", "docno", "corpus-id", "corpus_id")
_QUERY_ID = ("query_id", "query-id", "qid", "question_id", "topic_id")
# Usual column names by field and kind of record, the preferred one first.
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "passages": {
        "id": (*_PASSAGE_ID, *_ID),
        "text": ("text", "passage", "contents", "content", "body", "document", "paragraph"),
        "title": ("title",),
    },
    "queries": {"id": (*_QUERY_ID, *_ID), "text": ("query", "question", "text"), "answers": ("answers",)},
    "qrels": {"query": _QUERY_ID, "passage": _PASSAGE_ID, "relevance": ("relevance", "score", "rel", "label")},
}
_OPTIONAL = {"title", "answers"}


class Table:
    """A reader of one kind of table.

    Args:
        kind: ``passages``, ``queries`` or ``qrels``.
        names: Column by field, for columns that do not have a usual name.
    """

    def __init__(self, kind: str, names: Mapping[str, str] | None = None) -> None:
        self.kind, self.names = kind, dict(names or {})

    def __call__(self, path: Path, split: str) -> Iterator[FileRecord]:
        """Yield the rows of the table; other columns become metadata."""
        columns, rows = opened(path)
        line = None if path.suffix.lower() in PARQUET else 1
        places = self._places(columns, path, line)
        used = {place for place in places.values() if place is not None}
        for number, row in rows:
            if len(row) != len(columns):
                raise InputError(f"found {counted(len(row), 'column')}, the header has {len(columns)}.", path, number)
            values = {field: row[place] for field, place in places.items() if place is not None}
            rest = {columns[place]: row[place] for place in range(len(columns)) if place not in used}
            yield self._record(values, {key: cell for key, cell in rest.items() if _is_there(cell)}, path, number)

    def _places(self, columns: Sequence[str], path: Path, line: int | None) -> dict[str, int | None]:
        known = [name.strip().casefold() for name in columns]
        places: dict[str, int | None] = {}
        for field, usual in COLUMNS[self.kind].items():
            wanted = (self.names[field].casefold(),) if field in self.names else usual
            places[field] = next((known.index(name) for name in wanted if name in known), None)
            if places[field] is None and (field in self.names or field not in _OPTIONAL):
                raise InputError(
                    f"no column of the {self.kind} is their {field}: wanted one called {' or '.join(wanted)}. Present: "
                    f"{listed(columns)}. Say which it is: --column {self.kind}.{field}=NAME.",
                    path,
                    line,
                )
        return places

    def _record(self, values: dict[str, Any], rest: dict[str, Any], path: Path, number: int) -> FileRecord:
        if self.kind == "qrels":
            query, passage = (id_of(_string(values[f], f, path, number), f, path, number) for f in ("query", "passage"))
            relevance = relevance_of(str(values["relevance"]), path, number)
            return FileRecord(Qrel(query, passage, relevance), number)
        what = "passage" if self.kind == "passages" else "query"
        id_ = id_of(_string(values["id"], "id", path, number), what, path, number)
        text = _string(values["text"], "text", path, number)
        if self.kind == "passages":
            title = _string(values.get("title") or "", "title", path, number).strip()
            return FileRecord(Passage(id_, title, text), number, rest)
        answers = values.get("answers")
        if answers not in (None, ""):
            rest["answers"] = _answers(answers, path, number)
        return FileRecord(Query(id_, text), number, rest)


def kind_of(columns: Iterable[str]) -> str | None:
    """The kind of a table with these columns; None where they do not identify it."""
    known = {name.strip().casefold() for name in columns}
    if known & set(_QUERY_ID) and known & set(_PASSAGE_ID) and known & set(COLUMNS["qrels"]["relevance"]):
        return "qrels"
    if known & {"query", "question"}:
        return "queries"
    return "passages" if known & set(COLUMNS["passages"]["text"]) and known & {*_PASSAGE_ID, *_ID} else None


def opened(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]:
    """Column names, and rows with their numbers: the line, or in Parquet the row from 1."""
    if path.suffix.lower() in PARQUET:
        return _parquet(path)
    name = path.name.lower()
    delimiter = "," if ".csv" in Path(name).suffixes and not name.endswith(".qa.csv") else "\t"
    rows = quoted_rows(path, "a table with named columns", delimiter)
    first = next(rows, None)
    if first is None:
        raise InputError("this file is empty; wanted a table with named columns.", path)
    header = [name.strip() for name in first[1]]
    _require_names(header, path, first[0])
    return header, rows


def _parquet(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]:
    pyarrow = extra("pyarrow", "parquet", "Parquet")
    extra("pyarrow.parquet", "parquet", "Parquet")
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError:
        raise InputError("no such file; a Parquet file was expected there.", path) from None
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"this is no Parquet file, or a damaged one ({reason}).", path) from None
    columns = list(file.schema_arrow.names)
    _require_names(columns, path, None)

    def rows() -> Iterator[tuple[int, Sequence[Any]]]:
        number = 0
        try:
            for batch in file.iter_batches(_ROWS):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield number, row
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(f"this Parquet file is damaged after row {number} ({reason}).", path) from None

    return columns, rows()


def _require_names(columns: Sequence[str], path: Path, line: int | None) -> None:
    if len({name.strip().casefold() for name in columns}) < len(columns):
        raise InputError(f"two columns have one name: {listed(columns)}. Rename one.", path, line)


def listed(columns: Iterable[str]) -> str:
    """Column names for an error message."""
    return ", ".join(name if name.isprintable() and len(name) <= _SHORT else excerpt(name) for name in columns)


def _is_there(value: Any) -> bool:
    """Whether a cell has a value; NaN means a missing number."""
    return value not in (None, "") and value == value


def _answers(value: Any, path: Path, number: int) -> list[str]:
    """Answers from a cell: a list of strings (Parquet), a JSON list of strings, or one string."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        value = parsed if _are_strings(parsed) else [value]
    if not _are_strings(value):
        raise InputError(f"found answers {excerpt(value)}, wanted a string or a list of strings.", path, number)
    require_characters(value, path, number)
    return list(value)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _string(value: Any, field: str, path: Path, number: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"found {field} {excerpt(value)}, wanted a string.", path, number)
