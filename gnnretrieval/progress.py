"""Progress on standard error, with rate and time left: a bar in terminals and notebooks, else plain lines (law 9).

Lines go to the logger ``gnnretrieval`` at level INFO. The commands print them. A program that uses the package gets
them after :func:`show_progress`, or by its own logging.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_T = TypeVar("_T")
LINE_EVERY = 5.0  # seconds between plain lines
_BARS = "▁▂▃▄▅▆▇█"


# What a terminal obeys instead of showing it (control characters but tab and newline, marks that turn the direction of
# writing round), and halves of characters, which cannot be written.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def printable(text: str) -> str:
    """``text`` with what a terminal would obey written as ``\\u001b``: texts and ids of a dataset may be anyone's."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_log = logging.getLogger("gnnretrieval")
_indent: ContextVar[str] = ContextVar("indent", default="")


def say(line: str) -> None:
    """Tell the user how far the work is; of several processes that train together, only the first one tells."""
    if os.environ.get("RANK", "0") == "0":  # set by torchrun
        _log.info("%s%s", _indent.get(), printable(line))


@contextmanager
def indented() -> Iterator[None]:
    """Indent the lines that are said inside."""
    token = _indent.set(_indent.get() + "  ")
    try:
        yield
    finally:
        _indent.reset(token)


class _StandardError(logging.StreamHandler[TextIO]):
    """Prints to what ``sys.stderr`` is at that moment; warnings only where nobody else does, as a server's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno <= logging.INFO or not logging.getLogger().handlers

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        pass


def show_progress() -> None:
    """Print the lines on standard error, as the commands do."""
    _log.setLevel(logging.INFO)
    if not any(isinstance(handler, _StandardError) for handler in _log.handlers):
        _log.addHandler(_StandardError())


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2f}"


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """The last ``width`` values as bars in one line; the lowest and the highest value set the scale."""
    shown = values[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in shown)


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text(
            f"{_rate(task.speed)} {self.unit}/s" if task.speed else f"- {self.unit}/s", style="progress.data.speed"
        )


class _Bar(Progress):
    """A bar with a separate line for the note, so that both fit into 80 columns."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.note:
            yield Text(self.note, no_wrap=True, overflow="ellipsis")


class Meter:
    """Counts units of work and shows the progress; call :meth:`advance` after each piece."""

    def __init__(self, label: str, total: int, unit: str, done: int, bar: _Bar | None) -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, done
        self._first = done
        self._start = self._last = time.monotonic()
        self._bar = bar
        self._task = bar.add_task(label, total=total, completed=done) if bar else None

    def advance(self, count: int = 1, note: str = "") -> None:
        """Record ``count`` more units; ``note`` is shown below the bar, or after the line."""
        self.done += count
        if self._bar is not None and self._task is not None:
            self._bar.note = note
            self._bar.update(self._task, completed=self.done)
            return
        now = time.monotonic()
        if now - self._last >= LINE_EVERY and self.done < self.total:
            self._last = now
            rate = (self.done - self._first) / (now - self._start)
            left = (self.total - self.done) / rate if rate else float("inf")
            say(
                f"{self.label}: {self.done:,}/{self.total:,} {self.unit}, {_rate(rate)}/s, {left:.0f} s left"
                + (f", {note}" if note else "")
            )

    def each(self, items: Iterable[_T]) -> Iterator[_T]:
        """Iterate over the items and count them."""
        waiting = 0
        for item in items:
            yield item
            waiting += 1
            if waiting == 1000:
                self.advance(waiting)
                waiting = 0
        self.advance(waiting)


@contextmanager
def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[Meter]:
    """A :class:`Meter` for ``total`` units, of which an earlier run did ``done``."""
    console = Console(stderr=True)
    if sys.stderr.isatty() or (console.is_jupyter and find_spec("ipywidgets") is not None):
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(unit),
            TimeRemainingColumn(),
        )
        with _Bar(*columns, console=console) as bar:
            yield Meter(label, total, unit, done, bar)
    else:
        meter = Meter(label, total, unit, done, None)
        yield meter
        seconds = time.monotonic() - meter._start
        if seconds >= 2:
            say(f"{label}: {meter.done:,} {unit} in {seconds:.0f} s")
