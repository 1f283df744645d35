"""What is wrong with a dataset's files: problems by kind and file, and which of them only deserve notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnretrieval.data.faults import Fault

LINES = 5  # of a kind of problem in a file that are named
# What the readers accept. All else is an error: the dataset cannot be opened.
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
        kind: In two or three words.
        is_error: The dataset cannot be opened with it.
        file: Path in the dataset directory.
        count: Lines that have it; 1 for what is wrong with the file.
        lines: Number and sentence for the first of them; None for the number where it is the file that is wrong.
    """

    kind: str
    is_error: bool
    file: str
    count: int
    lines: list[tuple[int | None, str]]

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        lines = [{"line": number, "says": says} for number, says in self.lines]
        return {
            "kind": self.kind,
            "severity": "error" if self.is_error else "notice",
            "file": self.file,
            "count": self.count,
            "lines": lines,
        }


class Problems:
    """Collects problems, of each kind and file the first lines."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[str, str], list[tuple[int | None, str]]] = {}

    def add(self, file: str, line: int | None, fault: Fault, count: int = 1) -> None:
        """Count a fault in; ``count`` more than one for a fault that stands for others too, which are not named."""
        key = (file, fault.kind)
        self._counts[key] = self._counts.get(key, 0) + count
        lines = self._lines.setdefault(key, [])
        if len(lines) < LINES:
            lines.append((line, fault.says))

    def listed(self) -> list[Problem]:
        """Errors first, then by file and kind in order of appearance."""
        found = [
            Problem(kind, kind not in NOTICES, file, count, self._lines[file, kind])
            for (file, kind), count in self._counts.items()
        ]
        return sorted(found, key=lambda problem: not problem.is_error)
