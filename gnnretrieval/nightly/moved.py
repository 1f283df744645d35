"""The held-out questions that a promoted model moved most.

They are kept in the version's directory, beside the dataset that has their texts: reports and the ledger have none, and
forgetting deletes the directory.
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
    """A held-out question whose first relevant passage has another rank than before."""

    question: str
    before: int | None
    """Rank by the model that was served; None: below 10."""
    after: int | None
    """Rank by the new model; None: below 10."""


def moved_most(
    questions: Sequence[str], candidate: NDArray[np.float64], served: NDArray[np.float64]
) -> list[MovedQuestion]:
    """At most 5 questions, those whose reciprocal rank changed most first.

    Args:
        questions: Texts of the ``q`` held-out questions.
        candidate: ``(q,)`` RR@10 of each by the new model.
        served: ``(q,)`` the same by the served model.
    """
    change = np.abs(candidate - served)
    first = np.argsort(-change, kind="stable")[:_MOST].tolist()
    return [
        MovedQuestion(question=questions[one], before=_rank(served[one]), after=_rank(candidate[one]))
        for one in first
        if _rank(served[one]) != _rank(candidate[one])
    ]


def _rank(reciprocal: float) -> int | None:
    return round(1 / reciprocal) if reciprocal > 0 else None


def write_moved(moved: Sequence[MovedQuestion], version: Path) -> None:
    """Write them into a version's directory, or delete those of another model, if there are none."""
    (version / _FILE).unlink(missing_ok=True)
    if moved:
        write_json(version / _FILE, [one.as_json() for one in moved])


def read_moved(version: Path) -> list[MovedQuestion]:
    """Those of a version; none where its model is an older one's or the dual-encoder.

    Raises:
        InputError: the file cannot be read.
        ValueError: it has something else.
    """
    file = version / _FILE
    return [MovedQuestion.model_validate(one) for one in read_json(file, "list of questions")] if file.exists() else []
