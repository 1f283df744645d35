"""Logging of the server: warnings and errors go to standard error, repeated ones at most a few times a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

_MOST, _SECONDS = 5, 60.0


class Seldom(logging.Filter):
    """Logging filter that lets each line of code write at most ``most`` records in ``seconds``.

    The next record after that period says how many were left out.

    Args:
        most: Maximum number of records.
        seconds: Length of the period.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self, most: int = _MOST, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}  # by line of code: the period's start, and records

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        place, now = (record.pathname, record.lineno), self._clock()
        begun, number = self._seen.get(place, (now, 0))
        unwritten = 0
        if now - begun >= self._seconds:
            unwritten = max(0, number - self._most)
            begun, number = now, 0
        self._seen[place] = begun, number + 1
        if unwritten:
            record.msg, record.args = f"{record.getMessage()} ({unwritten:,} more like this were not written)", None
        return number < self._most


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"seldom": {"()": Seldom}},
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "level": "WARNING",  # progress is printed, not logged
            "formatter": "plain",
            "filters": ["seldom"],
        }
    },
    "root": {"level": "WARNING", "handlers": ["stderr"]},
}
