"""Open an SQLite file that somebody else may have written: with our tables only, no code, and limited work."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from gnnretrieval.errors import ArtifactError

_TICK = 20_000  # steps of SQLite's machine between two looks at the budget
_LOOKUP = 10**6  # steps that any statement may take; one that finds rows by key takes some hundreds
_STEPS_A_BYTE = 32  # of a file that is read through; a row of 10 bytes takes less than 100 steps
_LONGEST_VALUE = 2**28  # bytes of a text: a line of a dataset is shorter


class _Budget:
    """Steps of SQLite's machine that are left. Separate, so that the connection keeps no :class:`GuardedFile` alive."""

    def __init__(self) -> None:
        self.left = 0

    def tick(self) -> bool:
        self.left -= 1
        return self.left < 0  # SQLite then gives up


class GuardedFile:
    """A connection to an SQLite file that has the tables of ``schema``, and no others.

    Args:
        path: The file.
        schema: The ``CREATE TABLE`` statements that it was made with.
        writable: Open it to add to it.

    Raises:
        ArtifactError: it is no SQLite file, or has other tables, a view, a trigger or an index that is not ours.
    """

    def __init__(self, path: Path, schema: str, writable: bool = False) -> None:
        self.path = path
        self._budget, self._size = _Budget(), 0
        try:
            self._size = path.stat().st_size
            self.connection = sqlite3.connect(_address(path, writable), uri=True, check_same_thread=False)
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            if sys.version_info >= (3, 12):
                self.connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            for pragma in (
                "trusted_schema = OFF",
                "cell_size_check = ON",
                f"query_only = {'OFF' if writable else 'ON'}",
            ):
                self.connection.execute(f"PRAGMA {pragma}")
            if not writable:  # what is added is ours
                self.connection.set_progress_handler(self._budget.tick, _TICK)
            self.allow()
            objects = _objects(self.connection)
        except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
            raise damaged(path, error) from None
        with closing(sqlite3.connect(":memory:")) as ours:
            ours.executescript(schema)
            differ = objects ^ _objects(ours)
        if differ:
            raise damaged(
                path, f"its tables are not those of gnnretrieval: {min(name for _, name, _ in differ)!r} differs"
            )

    def allow(self, whole: bool = False) -> None:
        """Allow the next statement the steps of a lookup, or of reading the ``whole`` file."""
        self._budget.left += (_LOOKUP + _STEPS_A_BYTE * self._size * whole) // _TICK


def damaged(path: Path, why: object) -> ArtifactError:
    """The error of a damaged file; ``why`` says what is wrong with it."""
    return ArtifactError(
        f"{path}: this file of ids and texts is damaged ({why}). Delete the directory it is in and make it again."
    )


def _address(path: Path, writable: bool) -> str:
    """The file as a URI. Without a journal beside it, nobody changes it: it is read without locks and recovery."""
    journal = any(path.with_name(path.name + ending).exists() for ending in ("-journal", "-wal"))
    mode = "mode=rw" if writable else "mode=ro" if journal else "mode=ro&immutable=1"
    return f"{path.absolute().as_uri()}?{mode}"


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Type, name and statement of each table, index, view and trigger."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema")
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}
