"""The held-out questions that a promoted model moved most.

They are kept in the version's directory, beside the dataset with their texts. Reports and the ledger hold no texts, so
that forgetting deletes all of them with the directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.pages.reports import Figures
from gnnretrieval.storage.json_files import read_json
from gnnretrieval.storage.provenance import write_json

_FILE = "moved.json"
_MOST = 5


class MovedQuestion(Figures):
    """A held-out question. Its first relevant passage has another rank than before."""

    question: str
    before: int | None
    """Rank by the model that was served; None: below 10."""
    after: int | None
    """Rank by the new model; None: below 10."""


def moved_most(
    questions: Sequence[str], candidate: NDArray[np.float64], served: NDArray[np.float64]
) -> list[MovedQuestion]:
    """At most 5 questions, largest change of the reciprocal rank first.

    Args:
        questions: Texts of the ``q`` held-out questions.
        candidate: ``(q,)`` RR@10 of each by the new model.
        served: ``(q,)`` the same by the served model.
    """
    change = np.abs(candidate - served)
    first = np.argsort(-change, kind="stable")[:_MOST].tolist()
    return [
        MovedQuestion(question=questions[row], before=_rank(served[row]), after=_rank(candidate[row]))
        for row in first
        if _rank(served[row]) != _rank(candidate[row])
    ]


def _rank(reciprocal: float) -> int | None:
    return round(1 / reciprocal) if reciprocal > 0 else None


def write_moved(moved: Sequence[MovedQuestion], version: Path) -> None:
    """Write ``moved`` into a version's directory in place of an earlier model's; no file if there are none."""
    (version / _FILE).unlink(missing_ok=True)
    if moved:
        write_json(version / _FILE, [question.as_json() for question in moved])


def read_moved(version: Path) -> list[MovedQuestion]:
    """The questions that a version moved most; none if it has an older model or is the dual-encoder.

    Raises:
        InputError: the file cannot be read.
        ValueError: its content is not a list of questions.
    """
    file = version / _FILE
    if not file.exists():
        return []
    return [MovedQuestion.model_validate(entry) for entry in read_json(file, "list of questions")]
