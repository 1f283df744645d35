"""Problems of a dataset's files by kind and file: errors, and notices."""

from __future__ import annotations

from typing import Literal

from gnnretrieval.data.faults import Fault
from gnnretrieval.pages.reports import Figures

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


class ProblemLine(Figures):
    """A line with a problem."""

    line: int | None
    """Its number, from 1; None for a problem of the whole file."""
    says: str
    """What is wrong and what to do."""


class Problem(Figures):
    """A kind of problem in a file."""

    kind: str
    """Two or three words."""
    severity: Literal["error", "notice"]
    """A dataset with an error cannot be opened."""
    file: str
    """Path in the dataset directory."""
    count: int
    """Number of lines; 1 for a problem of the whole file."""
    lines: list[ProblemLine]
    """The first of these lines."""

    @property
    def is_error(self) -> bool:
        """Whether the dataset cannot be opened because of it."""
        return self.severity == "error"


class Problems:
    """Collects problems: counts, and the first lines of each kind and file."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[str, str], list[ProblemLine]] = {}

    def add(self, file: str, line: int | None, fault: Fault, count: int = 1) -> None:
        """Add a fault; a ``count`` above 1 also counts others of its kind that are not listed."""
        key = (file, fault.kind)
        self._counts[key] = self._counts.get(key, 0) + count
        lines = self._lines.setdefault(key, [])
        if len(lines) < LINES:
            lines.append(ProblemLine(line=line, says=fault.says))

    def listed(self) -> list[Problem]:
        """The problems, errors first, then in order of appearance."""
        problems = [
            Problem(
                kind=kind,
                severity="notice" if kind in NOTICES else "error",
                file=file,
                count=count,
                lines=self._lines[file, kind],
            )
            for (file, kind), count in self._counts.items()
        ]
        return sorted(problems, key=lambda problem: not problem.is_error)
