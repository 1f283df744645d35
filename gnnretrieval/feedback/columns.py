"""Columns of an event log: the field of each, by its usual names or as given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gnnretrieval.data.formats.table import COLUMNS, listed
from gnnretrieval.errors import InputError, nearest

# Usual names by field, the preferred one first.
FIELDS: dict[str, tuple[str, ...]] = {
    "question": ("query", "question", "query_text", "search_query", "search_term", "q", "text"),
    "question_id": COLUMNS["qrels"]["query"],
    "time": ("time", "timestamp", "ts", "@timestamp", "event_time", "datetime", "created_at", "date"),
    "session": ("session", "session_id", "sid", "visit_id", "user", "user_id", "client_id"),
    "shown": ("shown", "impressions", "results", "ranking", "passages", "passage_ids", "doc_ids", "docs"),
    "passage": ("passage", *COLUMNS["qrels"]["passage"], "document_id", "page_id", "page", "url"),
    "position": ("position", "rank", "pos"),
    "clicked": ("clicked", "clicks", "click", "is_click", "is_clicked", "clicked_ids"),
    "dwell": ("dwell", "dwell_time", "dwell_seconds", "dwell_ms", "dwell_time_ms"),
    "thumbs": ("thumbs", "thumb", "feedback", "vote"),
}


def columns_of(
    names: Iterable[str], given: Mapping[str, str], path: Path, *, one_of_several: bool = False
) -> dict[str, str]:
    """Column by field, for the fields that the log has.

    Args:
        names: The log's columns.
        given: Column by field, as far as the user named them.
        path: The log, for errors.
        one_of_several: A given column may be another log's: where this log lacks it, its usual names are looked for.

    Raises:
        InputError: a given column or field does not exist, or the log lacks the question, the time, or both a list of
            shown passages and a passage or clicks.
    """
    known = {name.strip().casefold(): name for name in names}
    require_fields(given)
    if one_of_several:
        given = {field: name for field, name in given.items() if name.strip().casefold() in known}
    columns: dict[str, str] = {}
    for field, usual in FIELDS.items():
        if field in given:
            name = known.get(given[field].strip().casefold())
            if name is None:
                raise InputError(
                    f"there is no column {given[field]!r}.{nearest(given[field], known)} Present: {listed(names)}.",
                    path,
                )
            columns[field] = name
        else:
            free = (known[alias] for alias in usual if alias in known and known[alias] not in given.values())
            if (first := next(free, None)) is not None:
                columns[field] = first
    for field in ("question", "time"):
        if field not in columns:
            raise InputError(
                f"no column is the {field}: wanted one called {' or '.join(FIELDS[field])}. Present: {listed(names)}. "
                f"Say which it is: --column {field}=NAME.",
                path,
            )
    if not {"shown", "passage", "clicked"} & columns.keys():
        raise InputError(
            "no column has the shown passages (shown), the passage of the row (passage) or the clicked passages "
            f"(clicked). Present: {listed(names)}. Say which it is: --column shown=NAME.",
            path,
        )
    if "shown" in columns and not {"clicked", "thumbs"} & columns.keys():
        raise InputError(
            f"no column has the clicked passages or the thumbs. Present: {listed(names)}. Say which it is: --column "
            "clicked=NAME.",
            path,
        )
    return columns


def require_fields(given: Mapping[str, str]) -> None:
    """Refuse a field that a log does not have.

    Raises:
        InputError: ``given`` has a field that is not in :data:`FIELDS`.
    """
    for field in given:
        if field not in FIELDS:
            raise InputError(f"a log has no field {field!r}.{nearest(field, FIELDS)} Fields: {', '.join(FIELDS)}.")
