"""Values of an event log: times, ids, clicks, dwell times and thumbs, in all usual notations."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from gnnretrieval.data.lines import excerpt

_TRUE = {"true", "yes", "y", "t"}
_FALSE = {"false", "no", "n", "f"}
_UP = {"up", "+1", "1", "1.0", "like", "liked", "positive", "good", "👍", *_TRUE}
_DOWN = {"down", "-1", "-1.0", "dislike", "disliked", "negative", "bad", "👎", *_FALSE}
_BACK = {"withdrawn", "taken back"}
WITHDRAWN = 2  # a thumb that takes the one before it back
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")
_DWELL = re.compile(_NUMBER.pattern + r"(?:e[+-]?\d{1,3})?", re.IGNORECASE)  # Python writes 0.00001 as 1e-05
_COMPACT = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}  # forms of dates as numbers, by the number of digits
_SECONDS = 1e11  # the year 5138; larger numbers are milli-, micro- or nanoseconds


class BadValue(ValueError):
    """A value of the wrong kind for its column; the error's text says what was wanted."""


def is_missing(value: Any) -> bool:
    """Whether a cell is empty; NaN means a missing number."""
    return value is None or value == "" or value != value


def time_of(value: Any) -> float:
    """Seconds since 1970 from ISO 8601 text, a number of seconds, milli-, micro- or nanoseconds, a date or a datetime.

    A time without a zone is in UTC. A whole number such as 20260301 or 20260301093000 is a date.

    Raises:
        BadValue: it is none of these.
    """
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return _in_range(moment.timestamp(), value)
    if isinstance(value, date):
        return time_of(datetime(value.year, value.month, value.day))
    if (compact := _compact(value)) is not None:
        return time_of(compact)
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            try:
                return time_of(datetime.fromisoformat(text.removesuffix(" UTC")))  # as BigQuery writes a timestamp
            except ValueError:
                raise BadValue(
                    f"found time {excerpt(value)}, wanted ISO 8601 such as 2026-03-01T09:30:00Z, or seconds since 1970."
                ) from None
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise BadValue(f"found time {excerpt(value)}, wanted ISO 8601 or seconds since 1970.")
    seconds = float(value)
    while seconds >= _SECONDS:
        seconds /= 1000
    return _in_range(seconds, value)


def _is_finite(value: float) -> bool:
    """Whether a number is finite as a float; a whole number of JSON has any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _compact(value: Any) -> datetime | None:
    """The date that the digits of a whole number write, from 1970 to 2099; as seconds they would be a day in 1970."""
    digits = str(value).strip() if isinstance(value, str | int) else ""
    form = _COMPACT.get(len(digits))
    if form is None or not digits.isdecimal() or not "1970" <= digits[:4] <= "2099":
        return None
    try:
        return datetime.strptime(digits, form)
    except ValueError:
        return None


def _in_range(seconds: float, value: Any) -> float:
    if not 0 <= seconds < _SECONDS:
        raise BadValue(f"found time {excerpt(value)}, which is before 1970 or far in the future.")
    return seconds


def id_of(value: Any) -> str:
    """An id as text.

    Raises:
        BadValue: it is neither a text nor a whole number, or is empty.
    """
    if isinstance(value, float) and value.is_integer():  # a column of whole numbers with gaps
        value = int(value)
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text:
        raise BadValue(f"found id {excerpt(value)}, wanted a text or a whole number.")
    return text


def items_of(value: Any) -> list[Any]:
    """A cell with several values: a list, JSON, or text with ``|``, ``;``, ``,`` or white space between the values.

    Raises:
        BadValue: it begins as JSON, and is not.
    """
    if is_missing(value):
        return []
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        return [value]
    text = value.strip()
    if text.startswith("["):
        items = _json(text)
        if not isinstance(items, list):
            raise BadValue(f"found {excerpt(value)}, wanted a list of ids.")
        return items
    between = next((sign for sign in "|;," if sign in text), None)
    return [part.strip() for part in text.split(between) if part.strip()]


def by_passage(value: Any, clicked: Sequence[str]) -> list[tuple[str, Any]]:
    """Passages with their dwell times or thumbs: an object, or one value or a list of values for the clicked passages.

    Args:
        value: The cell.
        clicked: The clicked passages; one that was clicked twice may have two values.

    Raises:
        BadValue: a list has another length than the clicked passages.
    """
    if isinstance(value, str) and value.strip().startswith("{"):
        value = _json(value.strip())
    if isinstance(value, dict):
        return [(id_of(passage), item) for passage, item in value.items() if not is_missing(item)]
    values = value if isinstance(value, list | tuple) else items_of(value)
    if len(values) == 1:
        values = list(values) * len(clicked)
    once = list(dict.fromkeys(clicked))
    if len(values) == len(once):
        clicked = once
    if values and len(values) != len(clicked):
        raise BadValue(f"found {len(values)} values for {len(clicked)} clicked passages: {excerpt(value)}.")
    return [(passage, item) for passage, item in zip(clicked, values, strict=False) if not is_missing(item)]


def is_clicked(value: Any) -> bool:
    """Whether a cell of one passage says that it was clicked: true or false, or a number of clicks.

    Raises:
        BadValue: it says neither.
    """
    if is_missing(value):
        return False
    if isinstance(value, bool | int | float):
        return value > 0
    text = str(value).strip().casefold()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NUMBER.fullmatch(text):
        return float(text) > 0
    raise BadValue(f"found {excerpt(value)} as clicked, wanted true or false, or a number of clicks.")


def seconds_of(value: Any, is_milliseconds: bool) -> float:
    """A dwell time in seconds.

    Raises:
        BadValue: it is not a number.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not _DWELL.fullmatch(text):
        raise BadValue(f"found dwell time {excerpt(value)}, wanted a number of seconds.")
    return float(text) / (1000 if is_milliseconds else 1)


def thumb_of(value: Any) -> int:
    """1 for up, -1 for down, :data:`WITHDRAWN` for a thumb that was taken back, 0 for neither.

    Raises:
        BadValue: it is none of the usual words.
    """
    text = str(value).strip().casefold()
    if text in _BACK:
        return WITHDRAWN
    if is_missing(value) or text in ("0", "0.0", "none", "null", "neutral"):
        return 0
    if text in _UP or text in _DOWN:
        return 1 if text in _UP else -1
    raise BadValue(f"found thumbs {excerpt(value)}, wanted up, down or withdrawn, or 1 or -1.")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadValue(f"this is not JSON: {excerpt(text)}.") from None
