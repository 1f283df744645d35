"""Reader of event logs: JSON lines, CSV, TSV and Parquet; a line is an impression or a shown passage."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gnnretrieval.data.formats.table import PARQUET, opened
from gnnretrieval.data.lines import decoded, excerpt, raw_lines, read_lines, require_characters
from gnnretrieval.errors import InputError, counted
from gnnretrieval.feedback.columns import columns_of
from gnnretrieval.feedback.values import (
    BadValue,
    by_passage,
    id_of,
    is_clicked,
    is_missing,
    items_of,
    seconds_of,
    thumb_of,
    time_of,
)
from gnnretrieval.progress import say

WANTED = "an event log: JSON lines, CSV, TSV or Parquet"

Record = Mapping[str, Any]


class EmptyLogError(InputError):
    """A log has no event yet."""


class Shown(NamedTuple):
    """A passage of an event.

    Attributes:
        passage: Its id.
        position: Where it was shown, from 1; None where the log does not say.
        clicked: Whether it was clicked.
        dwell: Seconds that it was read; None where the log does not say.
        thumb: 1 for up, -1 for down, 0 for neither; :data:`~gnnretrieval.feedback.values.WITHDRAWN` where a thumb was
            taken back.
    """

    passage: str
    position: int | None
    clicked: bool
    dwell: float | None
    thumb: int


class Event(NamedTuple):
    """A line of a log: a question, and passages that were shown for it.

    Attributes:
        question: Its text.
        question_id: Its id in the log; empty without one.
        time: Seconds since 1970.
        session: Its session; empty where the log does not say.
        shown: The passages, without repetition.
        outside: Clicked passages that are not in the list of the shown ones.
        is_whole: Whether the line has a whole list or all its clicks; if not, it has one passage of a list.
    """

    question: str
    question_id: str
    time: float
    session: str
    shown: tuple[Shown, ...]
    outside: int
    is_whole: bool = True


class Log(Protocol):
    """Events that can be read, however they are stored."""

    @property
    def path(self) -> Path:
        """Their file."""

    @property
    def columns(self) -> dict[str, str]:
        """Column by field."""

    @property
    def has_lists(self) -> bool:
        """Whether they also have shown passages without a click. If not, they have clicks alone."""

    def events(self) -> Iterator[Event]:
        """The events, in the file's order."""


class EventLog:
    """An event log on disk. Opening it decides its columns; :meth:`events` reads it as a stream.

    A last line of JSON without a line ending that is not whole is still being written, or was cut off by a crash: it is
    skipped with a warning. When it is whole, the log can be read again.

    Args:
        path: The file, plain or gzipped.
        given: Column by field, for columns without a usual name.
        one_of_several: A given column may be another log's.

    Attributes:
        columns: Column by field.
        has_lists: Whether the log also has shown passages without a click. If not, it has clicks alone.

    Raises:
        InputError: the file cannot be read, or its columns lack a field.
    """

    def __init__(
        self, path: str | Path, given: Mapping[str, str] | None = None, *, one_of_several: bool = False
    ) -> None:
        self.path = Path(path)
        self._is_json = _has_json_lines(self.path)
        if self._is_json:  # a key may be missing from many records: all are looked through
            names = dict.fromkeys(key for _, record in self._records(warns=True) for key in record)
            if not names:
                raise EmptyLogError("no event is in this file yet.", self.path)
        else:
            names = dict.fromkeys(opened(self.path)[0])
        self.columns = columns_of(names, given or {}, self.path, one_of_several=one_of_several)
        self.has_lists = "shown" in self.columns or {"passage", "clicked"} <= self.columns.keys()

    def events(self) -> Iterator[Event]:
        """The events, in the file's order.

        Raises:
            InputError: a value is not what its column should hold; with file and line.
        """
        first = 1 - self._least_position()
        for number, record in self._records():
            try:
                yield self._event(record, first)
            except BadValue as error:
                raise InputError(f"{error} Correct this line.", self.path, number) from None

    def _records(self, warns: bool = False) -> Iterator[tuple[int, Record]]:
        if not self._is_json:
            columns, rows = opened(self.path)
            for number, row in rows:
                if len(row) != len(columns):
                    found = f"found {counted(len(row), 'column')}, and the header has {len(columns)}."
                    raise InputError(found, self.path, number)
                yield number, dict(zip(columns, row, strict=True))
            return
        for number, raw in raw_lines(self.path, WANTED):
            if raw.isspace():
                continue
            record = _object(raw)
            if record is None and not raw.endswith(b"\n"):  # only the last line has no ending
                if warns:
                    say(f"{self.path}:{number}: the last line is not whole, as after a power cut: it is skipped.")
                return
            line = decoded(self.path, number, raw)
            if record is None:
                raise InputError(
                    f"not a JSON object: {excerpt(line.rstrip())}. Write each event on one line.", self.path, number
                )
            require_characters(record, self.path, number)
            yield number, record

    def _least_position(self) -> int:
        """0 where the log counts positions from 0, otherwise 1."""
        if "position" not in self.columns or "shown" in self.columns:
            return 1
        values = (self._value(record, "position") for _, record in self._records())
        return 0 if any(str(value).strip() in ("0", "0.0") for value in values) else 1

    def _value(self, record: Record, field: str) -> Any:
        name = self.columns.get(field)
        return None if name is None else record.get(name)

    def _event(self, record: Record, first: int) -> Event:
        question, id_, session = (self._value(record, field) for field in ("question", "question_id", "session"))
        if not is_missing(question) and not isinstance(question, str):
            question = id_of(question)  # a question of digits, from Parquet or JSON
        shown, outside = self._row(record, first) if "shown" not in self.columns else self._list(record)
        return Event(
            "" if is_missing(question) else question,
            "" if is_missing(id_) else id_of(id_),
            time_of(self._value(record, "time")),
            "" if is_missing(session) else id_of(session),
            shown,
            outside,
            is_whole="shown" in self.columns or not self.has_lists,
        )

    def _list(self, record: Record) -> tuple[tuple[Shown, ...], int]:
        """The passages of a line with a list, in its order."""
        ids = [id_of(item) for item in items_of(self._value(record, "shown"))]
        positions = {passage: place for place, passage in reversed(list(enumerate(ids, 1)))}
        clicked = self._clicked(record, ids)
        dwell, thumbs = self._dwell_and_thumbs(record, clicked)
        shown = tuple(
            Shown(passage, positions[passage], passage in clicked, dwell.get(passage), thumbs.get(passage, 0))
            for passage in dict.fromkeys(ids)
        )
        return shown, len({*clicked, *thumbs} - positions.keys()) + (not clicked and self._has_lone_thumb(record))

    def _has_lone_thumb(self, record: Record) -> bool:
        """Whether there is a thumb that names no passage, which a click would name."""
        values = items_of(self._value(record, "thumbs")) if "thumbs" in self.columns else []
        if len(values) != 1 or isinstance(values[0], dict) or str(values[0]).startswith("{"):
            return False
        try:
            return thumb_of(values[0]) in (1, -1)
        except BadValue:
            return False

    def _clicked(self, record: Record, ids: Sequence[str]) -> list[str]:
        """The clicked passages, one that was clicked twice two times."""
        values = [_truth(value, ids) for value in items_of(self._value(record, "clicked"))]
        if values and all(isinstance(value, bool) for value in values):
            if len(values) != len(ids):
                raise BadValue(f"found {len(values)} clicks, true or false, for {len(ids)} shown passages.")
            values = [passage for passage, value in zip(ids, values, strict=True) if value]
        return [id_of(value) for value in values]

    def _dwell_and_thumbs(self, record: Record, clicked: list[str]) -> tuple[dict[str, float], dict[str, int]]:
        dwell: dict[str, float] = {}
        for passage, value in by_passage(self._value(record, "dwell"), clicked):
            dwell[passage] = max(seconds_of(value, self._is_milliseconds), dwell.get(passage, -math.inf))
        thumbs = by_passage(self._value(record, "thumbs"), clicked)
        return dwell, {passage: thumb for passage, value in thumbs if (thumb := thumb_of(value))}

    @property
    def _is_milliseconds(self) -> bool:
        return self.columns.get("dwell", "").casefold().endswith("ms")

    def _row(self, record: Record, first: int) -> tuple[tuple[Shown, ...], int]:
        """The passages of a line without a list: its passage, or the clicked ones."""
        if "passage" not in self.columns:
            clicked = self._clicked(record, ())
            dwell, thumbs = self._dwell_and_thumbs(record, clicked)
            once = dict.fromkeys(clicked)
            return tuple(Shown(id_, None, True, dwell.get(id_), thumbs.get(id_, 0)) for id_ in once), 0
        passage, dwell_time = self._value(record, "passage"), self._value(record, "dwell")
        if is_missing(passage):
            return (), 0
        thumb = thumb_of(self._value(record, "thumbs"))
        has_click = is_clicked(self._value(record, "clicked")) if "clicked" in self.columns else not thumb
        seconds = None if is_missing(dwell_time) else seconds_of(dwell_time, self._is_milliseconds)
        return (Shown(id_of(passage), self._position(record, first), has_click, seconds, thumb),), 0

    def _position(self, record: Record, first: int) -> int | None:
        value = self._value(record, "position")
        if is_missing(value):
            return None
        text = str(value).strip().removesuffix(".0")
        if not text.isdecimal() or len(text) > _LONGEST or not 1 <= int(text) + first <= _MOST_POSITIONS:
            raise BadValue(f"found position {excerpt(value)}, wanted a whole number from 1 to {_MOST_POSITIONS:,}.")
        return int(text) + first


def open_logs(logs: Sequence[str | Path | Log], given: Mapping[str, str] | None = None) -> list[Log]:
    """The logs, opened. One without an event yet, as of a night without questions, is left out with a sentence.

    Args:
        logs: Files, or logs that are open.
        given: Column by field, for columns without a usual name. Of several logs, each takes those that it has.

    Raises:
        InputError: as of :class:`EventLog`; no log has a given column.
    """
    opened: list[Log] = []
    for log in logs:
        try:
            several = len(logs) > 1
            opened.append(EventLog(log, given, one_of_several=several) if isinstance(log, str | Path) else log)
        except EmptyLogError:
            say(f"{log}: no event is in this log yet: it is left out.")
    taken = {name.strip().casefold() for log in opened for name in log.columns.values()}
    for field, name in (given or {}).items():
        if opened and name.strip().casefold() not in taken:
            raise InputError(f"no log has a column {name!r}, which --column gives for the {field}.")
    return opened


_MOST_POSITIONS = 1000
_LONGEST = 20  # digits of a position


def _truth(value: Any, ids: Sequence[str]) -> Any:
    """A click of a list: true or false for the words of a table, unless they are ids of the list."""
    words = {"true": True, "false": False}
    return words.get(value.casefold(), value) if isinstance(value, str) and value not in ids else value


def _object(raw: bytes) -> dict[str, Any] | None:
    """A line as a JSON object; None where it is not one."""
    try:
        record = json.loads(raw.decode())
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _has_json_lines(path: Path) -> bool:
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    ending = endings[-1] if endings else ""
    if ending in PARQUET:
        return False
    first = next(read_lines(path, WANTED), None)
    if first is None:
        raise EmptyLogError(f"this file is empty; wanted {WANTED}.", path)
    if ending in (".csv", ".tsv"):
        return False
    begins = first[1].lstrip()
    if begins.startswith("["):
        raise InputError(
            "this is one JSON array: write each of its events on a line, for example by jq -c '.[]'.", path, first[0]
        )
    return begins.startswith("{")
