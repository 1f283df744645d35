"""Problems of a dataset's files by kind and file: errors, and notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnretrieval.data.faults import Fault

LINES = 5  # lines that are listed per kind and file
# Kinds that the readers accept. All others are errors: the dataset cannot be opened.
NOTICES = (
    "control character",
    "replacement character",
    "doubly encoded",
    "HTML entity",
    "HTML tag",
    "byte order mark",
    "Windows line ends",
    "no text",
    "white space in an id",
    "repeated judgement",
)


@dataclass(frozen=True)
class Problem:
    """A kind of problem in a file.

    Attributes:
        kind: The kind in two or three words.
        is_error: Whether the dataset cannot be opened because of it.
        file: Path in the dataset directory.
        count: Number of lines; 1 for a problem of the whole file.
        lines: Line number and sentence of the first lines; the number is None for a problem of the whole file.
    """

    kind: str
    is_error: bool
    file: str
    count: int
    lines: list[tuple[int | None, str]]

    def as_json(self) -> dict[str, Any]:
        """The problem as JSON values."""
        lines = [{"line": number, "says": says} for number, says in self.lines]
        return {
            "kind": self.kind,
            "severity": "error" if self.is_error else "notice",
            "file": self.file,
            "count": self.count,
            "lines": lines,
        }


class Problems:
    """Collects problems: counts, and the first lines of each kind and file."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[str, str], list[tuple[int | None, str]]] = {}

    def add(self, file: str, line: int | None, fault: Fault, count: int = 1) -> None:
        """Add a fault; a ``count`` above 1 also counts others of its kind that are not listed."""
        key = (file, fault.kind)
        self._counts[key] = self._counts.get(key, 0) + count
        lines = self._lines.setdefault(key, [])
        if len(lines) < LINES:
            lines.append((line, fault.says))

    def listed(self) -> list[Problem]:
        """The problems, errors first, then in order of appearance."""
        problems = [
            Problem(kind, kind not in NOTICES, file, count, self._lines[file, kind])
            for (file, kind), count in self._counts.items()
        ]
        return sorted(problems, key=lambda problem: not problem.is_error)
