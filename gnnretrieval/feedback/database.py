"""Events that a query selects in PostgreSQL, written as an event log."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from gnnretrieval.errors import InputError
from gnnretrieval.platform.extras import extra
from gnnretrieval.storage.artifacts import whole_file

_ROWS = 10_000  # rows that are fetched together


def fetch_events(query: str, dsn: str, out: str | Path) -> int:
    """Write the rows of a query as JSON lines, which :func:`gnnretrieval.feedback.import_feedback` reads.

    The query runs in a read-only transaction, through a cursor: only some rows are in memory at a time. Arrays and JSON
    columns become lists and objects, times ISO 8601.

    Args:
        query: One ``SELECT``.
        dsn: The database, such as ``postgresql://user@host/name``; empty: by libpq's variables (``PGHOST``, …).
        out: The file, replaced when all rows are there.

    Returns:
        Number of rows.

    Raises:
        InputError: PostgreSQL reports an error, or the query selects nothing or two columns of one name.
        GnnRetrievalError: psycopg is not installed.
    """
    psycopg = extra("psycopg", "pgvector", "PostgreSQL")
    place, count = Path(out), 0
    try:
        with psycopg.connect(dsn) as connection:
            connection.read_only = True
            with connection.cursor(name="events") as cursor:
                cursor.itersize = _ROWS
                cursor.execute(query.strip().rstrip(";"))
                names = [column.name for column in cursor.description or ()]
                twice = [name for name, times in Counter(names).items() if times > 1]
                if twice:
                    raise InputError(f"the query has two columns {twice[0]!r}: name one of them by AS.")
                with whole_file(place) as partial:
                    with partial.open("w", encoding="utf-8") as file:
                        for row in cursor:
                            line = dict(zip(names, row, strict=True))
                            file.write(json.dumps(line, ensure_ascii=False, default=_written) + "\n")
                            count += 1
                    if not count:
                        raise InputError("the query selects no row: nothing was written.")
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"PostgreSQL says: {reason}. Nothing was written.") from None
    return count


def _written(value: Any) -> Any:
    """A value that JSON lacks."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else str(value)
