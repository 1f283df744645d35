"""Ids and texts in SQLite, and the only way from an id to a row and back (law 2)."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

from gnnretrieval.data.records import Passage
from gnnretrieval.data.sqlite_files import GuardedFile, damaged
from gnnretrieval.errors import ArtifactError, InputError

_T = TypeVar("_T")
_SCHEMA = """
CREATE TABLE passages (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE queries (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, split TEXT NOT NULL);
CREATE TABLE qrels (query INTEGER NOT NULL, passage INTEGER NOT NULL, relevance INTEGER NOT NULL,
                    PRIMARY KEY (query, passage)) WITHOUT ROWID;
"""
_PASSAGE, _QUERY = (int, str, str, str), (int, str, str, str)


class PassageRow(NamedTuple):
    """A row of the ``passages`` table."""

    row: int
    id: str
    title: str
    text: str

    @property
    def full_text(self) -> str:
        """As :attr:`Passage.full_text`."""
        return Passage(self.id, self.title, self.text).full_text


class QueryRow(NamedTuple):
    """A row of the ``queries`` table."""

    row: int
    id: str
    text: str
    split: str


def passage_rows(passages: Iterable[Passage], first: int = 0) -> Iterator[PassageRow]:
    """Passages in order as rows from ``first`` on."""
    return (PassageRow(row, passage.id, passage.title, passage.text) for row, passage in enumerate(passages, first))


class TextStore:
    """Passages, queries and judgements of an artifact, by row ``0…m-1`` and ``0…n-1``.

    Args:
        path: The SQLite file; opened read-only unless ``create``.
        create: Start a new one (an old file at ``path`` is removed).
        extend: Open it to add rows; they are saved together at the end of the ``with`` block, or not at all.
        hidden: Rows of passages that no lookup returns; :meth:`passage_ids` and :meth:`counts` still include them,
            as they go by row.
    """

    def __init__(
        self, path: str | Path, create: bool = False, extend: bool = False, *, hidden: Collection[int] = ()
    ) -> None:
        self.path, self._hidden = Path(path), frozenset(hidden)
        self._guard: GuardedFile | None = None  # of a file that this process does not make
        if create:
            self.path.unlink(missing_ok=True)
            self._db = sqlite3.connect(self.path)
            # A half-made file is never opened: no journal to fall back on is wanted.
            self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            return
        if not self.path.is_file():
            raise InputError("no such file of ids and texts.", self.path)
        self._guard = GuardedFile(self.path, _SCHEMA, writable=extend)
        self._db = self._guard.connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._writing():
                self._db.commit()
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise an :class:`OSError` for what SQLite cannot write, such as on a full disk, as other files do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            self._db.close()
            number = errno.ENOSPC if "full" in str(error) else errno.EIO
            raise OSError(number, str(error), str(self.path)) from error

    def add_passages(self, rows: Iterable[PassageRow]) -> None:
        """Insert passages."""
        with self._writing():
            self._db.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)

    def add_queries(self, rows: Iterable[QueryRow]) -> None:
        """Insert queries."""
        with self._writing():
            self._db.executemany("INSERT INTO queries VALUES (?, ?, ?, ?)", rows)

    def add_qrels(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Insert judgements ``(query row, passage row, relevance)``; a new judgement of a pair replaces the old."""
        with self._writing():
            self._db.executemany("INSERT OR REPLACE INTO qrels VALUES (?, ?, ?)", rows)

    def purge_passages(self, rows: Sequence[int]) -> None:
        """Take titles, texts and judgements of passages out of the file, free pages included; rows and ids stay."""
        with self._writing():
            if self._guard is not None:
                self._guard.allow(whole=True)
            self._db.execute("PRAGMA journal_mode = MEMORY")
            self._db.execute("PRAGMA secure_delete = ON")
            self._db.executemany("UPDATE passages SET title = '', text = '' WHERE row = ?", ((row,) for row in rows))
            self._db.executemany("DELETE FROM qrels WHERE passage = ?", ((row,) for row in rows))
            self._db.commit()
            self._db.execute("VACUUM")

    def _rows(
        self, statement: str, values: Sequence[Any] = (), *, types: tuple[type, ...], whole: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Rows with values of these ``types``; ``whole``: the statement reads a whole table.

        Raises:
            InputError: A value is a text with half a character in it: how Python shows bytes of another encoding.
        """
        if self._guard is not None:
            self._guard.allow(whole)
        try:
            for row in self._db.execute(statement, values):
                if tuple(map(type, row)) != types:
                    raise self._damaged(f"a value of another type than {' and '.join(kind.__name__ for kind in types)}")
                yield row
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is not UTF-8: give it in UTF-8.") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError) as error:
            raise self._damaged(error) from None

    def _in_order(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Rows of a whole table, which are numbered without a gap."""
        for number, row in enumerate(rows):
            if row[0] != number:
                raise self._damaged(f"row {row[0]} comes where row {number} should")
            yield row

    def _damaged(self, why: object) -> ArtifactError:
        return damaged(self.path, why)

    def counts(self) -> tuple[int, int]:
        """Number of passages and of queries, from the last rows alone."""
        passages, queries = (
            next(self._rows(f"SELECT coalesce(max(row), -1) + 1 FROM {table}", types=(int,)))[0]
            for table in ("passages", "queries")
        )
        return passages, queries

    def query_rows_of_split(self, split: str) -> list[int]:
        """Rows of the queries of a split, ascending."""
        statement = "SELECT row FROM queries WHERE split = ? ORDER BY row"
        return [row for (row,) in self._rows(statement, (split,), types=(int,), whole=True)]

    def passage_ids(self) -> list[str]:
        """Ids of all passages, by row."""
        return [id_ for _, id_ in self._all("SELECT row, id FROM passages ORDER BY row", (int, str))]

    def query_ids(self) -> list[str]:
        """Ids of all queries, by row."""
        return [id_ for _, id_ in self._all("SELECT row, id FROM queries ORDER BY row", (int, str))]

    def _all(self, statement: str, types: tuple[type, ...]) -> Iterator[tuple[Any, ...]]:
        return self._in_order(self._rows(statement, types=types, whole=True))

    def passage(self, row: int) -> PassageRow:
        """The passage at ``row``."""
        return self._passage("row", row)

    def texts_of_passages(self, rows: Sequence[int]) -> list[str]:
        """Texts of the passages at ``rows``, title first, as encoders see them."""
        texts: dict[int, str] = {}
        if self._hidden and not self._hidden.isdisjoint(rows):
            self.passage(next(row for row in rows if row in self._hidden))  # says that there is none
        for part in _parts(rows):
            statement = f"SELECT row, id, title, text FROM passages WHERE row IN ({','.join('?' * len(part))})"
            passages = map(PassageRow._make, self._rows(statement, part, types=_PASSAGE))
            texts.update((passage.row, passage.full_text) for passage in passages)
        return self._each(texts, rows)

    def ids_of_passages(self, rows: Sequence[int]) -> list[str]:
        """Ids of the passages at ``rows``, hidden ones included."""
        ids: dict[int, str] = {}
        for part in _parts(rows):
            statement = f"SELECT row, id FROM passages WHERE row IN ({','.join('?' * len(part))})"
            ids.update(dict(self._rows(statement, part, types=(int, str))))
        return self._each(ids, rows)

    def texts_of_queries(self, rows: Sequence[int]) -> list[str]:
        """Texts of the queries at ``rows``."""
        texts: dict[int, str] = {}
        for part in _parts(rows):
            statement = f"SELECT row, text FROM queries WHERE row IN ({','.join('?' * len(part))})"
            texts.update(dict(self._rows(statement, part, types=(int, str))))
        return self._each(texts, rows)

    def _each(self, texts: dict[int, str], rows: Sequence[int]) -> list[str]:
        try:
            return [texts[row] for row in rows]
        except KeyError as error:
            raise self._damaged(f"it has no row {error}") from None

    def passage_by_id(self, id_: str) -> PassageRow:
        """The passage called ``id_``."""
        return self._passage("id", id_)

    def _passage(self, column: str, value: int | str) -> PassageRow:
        statement = f"SELECT row, id, title, text FROM passages WHERE {column} = ?"
        record = next(self._rows(statement, (value,), types=_PASSAGE), None)
        if record is None or record[0] in self._hidden:
            raise InputError(f"there is no passage with {column} {value!r}.", self.path.parent)
        return PassageRow(*record)

    def query(self, row: int) -> QueryRow:
        """The query at ``row``."""
        return self._query("row", row)

    def query_by_id(self, id_: str) -> QueryRow:
        """The query called ``id_``."""
        return self._query("id", id_)

    def _query(self, column: str, value: int | str) -> QueryRow:
        statement = f"SELECT row, id, text, split FROM queries WHERE {column} = ?"
        record = next(self._rows(statement, (value,), types=_QUERY), None)
        if record is None:
            raise InputError(f"there is no query with {column} {value!r}.", self.path.parent)
        return QueryRow(*record)

    def passages(self) -> Iterator[PassageRow]:
        """All passages, by row."""
        rows = self._all("SELECT row, id, title, text FROM passages ORDER BY row", _PASSAGE)
        return (PassageRow._make(row) for row in rows if row[0] not in self._hidden)

    def queries(self) -> Iterator[QueryRow]:
        """All queries, by row."""
        return map(QueryRow._make, self._all("SELECT row, id, text, split FROM queries ORDER BY row", _QUERY))

    def qrels(self) -> list[tuple[int, int, int]]:
        """Judgements ``(query row, passage row, relevance)``, sorted."""
        statement = "SELECT query, passage, relevance FROM qrels ORDER BY query, passage"
        judgements: list[Any] = list(self._rows(statement, types=(int, int, int), whole=True))
        passages, queries = self.counts()
        for query, passage, _ in judgements:
            if not (0 <= query < queries and 0 <= passage < passages):
                raise self._damaged(f"a judgement of query row {query} and passage row {passage}")
        return judgements

    def rows_of_passages(self, ids: Sequence[str]) -> dict[str, int]:
        """Row by id, for the ``ids`` that exist."""
        rows = self._rows_of("passages", ids)
        return {id_: row for id_, row in rows.items() if row not in self._hidden} if self._hidden else rows

    def rows_of_queries(self, ids: Sequence[str]) -> dict[str, int]:
        """Row by id, for the ``ids`` that exist."""
        return self._rows_of("queries", ids)

    def rows_named(self, name: str, most: int) -> list[int]:
        """The row of the passage with the id ``name``; else up to ``most`` rows with ``name`` in id or title.

        Latin letters match in any case. It reads the whole table where no id is ``name``.
        """
        exact = self.rows_of_passages([name])
        if exact or not name:
            return list(exact.values())
        statement = (
            "SELECT row, id FROM passages WHERE instr(lower(id), ?1) OR instr(lower(title), ?1) ORDER BY row LIMIT ?2"
        )
        values = (name.lower(), most + len(self._hidden))
        rows = (row for row, _ in self._rows(statement, values, types=(int, str), whole=True))
        return [row for row in rows if row not in self._hidden][:most]

    def _rows_of(self, table: str, ids: Sequence[str]) -> dict[str, int]:
        rows = {}
        for part in _parts(ids):
            marks = ",".join("?" * len(part))
            statement = f"SELECT id, row FROM {table} WHERE id IN ({marks})"
            rows.update(dict(self._rows(statement, part, types=(str, int))))
        return rows

    def relevant_to(self, query: int) -> list[int]:
        """Rows of the passages that are judged relevant to the query at a row, in order."""
        statement = "SELECT passage FROM qrels WHERE query = ? AND relevance > 0 ORDER BY passage"
        return [row for (row,) in self._rows(statement, (query,), types=(int,)) if row not in self._hidden]

    def relevance(self, query: int, passage: int) -> int | None:
        """The judgement of one pair of rows; None where it is not judged."""
        statement = "SELECT relevance FROM qrels WHERE query = ? AND passage = ?"
        judgement = next(self._rows(statement, (query, passage), types=(int,)), None)
        return None if judgement is None else int(judgement[0])

    def ids_beside(self, table: Literal["passages", "queries"], id_: str, most: int = 1000) -> list[str]:
        """Up to ``most`` ids of a table on either side of ``id_`` in alphabetical order, read through its index."""
        types = (str, int)
        before = self._rows(
            f"SELECT id, row FROM {table} WHERE id < ? ORDER BY id DESC LIMIT ?", (id_, most), types=types
        )
        after = self._rows(f"SELECT id, row FROM {table} WHERE id >= ? ORDER BY id LIMIT ?", (id_, most), types=types)
        hidden = self._hidden if table == "passages" else ()
        return [id_ for id_, row in (*before, *after) if row not in hidden]


class KeptTextStore(TextStore):
    """A text store that a ``with`` block leaves open; :meth:`close` closes it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _parts(values: Sequence[_T]) -> Iterator[list[_T]]:
    """Values in parts that are small enough for one statement."""
    return (list(values[start : start + 500]) for start in range(0, len(values), 500))
