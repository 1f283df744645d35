"""Errors a user can cause. Each is one sentence: what was found, where, and what to do (law 7)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path


class GnnRetrievalError(Exception):
    """A failure that is the input's or the environment's, not the program's. Printed without a traceback."""


class InputError(GnnRetrievalError):
    """Bad input, with the file and the line it was found in.

    Args:
        message: What was found, what was wanted, what to do.
        path: The file or directory at fault.
        line: 1-based line number in ``path``.

    Attributes:
        says: The message alone.
    """

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self.line = line
        self.says = message
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{where}{message}")


class ArtifactError(GnnRetrievalError):
    """An artifact is missing, half made, of another kind, or made from other inputs than the ones given."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the nearest of ``known`` to ``name``, or the empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def counted(count: int, one: str, many: str = "") -> str:
    """``1 query`` or ``1,234 queries``: a count with its noun; ``many`` where the plural is not regular."""
    return f"{count:,} {one if count == 1 else many or re.sub('(?<![aeiou])y$', 'ie', one) + 's'}"
