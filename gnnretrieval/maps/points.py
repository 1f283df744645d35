"""The points of a map that a page draws: all, or a random part of a large map."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.errors import ArtifactError
from gnnretrieval.maps.passage_map import PassageMap
from gnnretrieval.maps.projection import Floats


class Points(NamedTuple):
    """Points of some passages and of some training questions.

    Attributes:
        rows: ``(p,)`` rows of the passages in the map, ascending.
        before: ``(p, 2)``.
        after: ``(p, 2)``.
        displacement: ``(p,)``.
        question_rows: ``(q,)`` rows of the questions, ascending.
        questions: ``(q, 2)``.
    """

    rows: NDArray[np.uint32]
    before: Floats
    after: Floats
    displacement: Floats
    question_rows: NDArray[np.uint32]
    questions: Floats

    def to_bytes(self) -> bytes:
        """The arrays one after the other, in the order of the attributes: four bytes per number, little-endian."""
        return b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in self)


def points_of(shown: PassageMap, most: int, hidden: Collection[int] = ()) -> Points:
    """The points to draw.

    Args:
        shown: The map.
        most: Passages to draw, and questions; drawn at random by the map's seed if there are more.
        hidden: Rows of passages to leave out.

    Raises:
        ArtifactError: The map is damaged: a point is not finite.
    """
    generator = np.random.default_rng(shown.config["seed"])
    rows = np.setdiff1d(np.arange(shown.num_passages, dtype=np.uint32), np.fromiter(hidden, np.uint32, len(hidden)))
    rows, questions = (
        candidates if len(candidates) <= most else np.sort(generator.choice(candidates, most, replace=False))
        for candidates in (rows, np.arange(shown.num_questions, dtype=np.uint32))
    )
    points = Points(
        rows,
        shown.before[rows],
        shown.after[rows],
        shown.displacement[rows],
        questions,
        shown.questions[questions],
    )
    if not all(np.isfinite(array).all() for array in points):
        raise ArtifactError(f"{shown.path}: the map is damaged: a point is not finite. Delete it and make it again.")
    return points


def figures_of(shown: PassageMap, points: Points) -> dict[str, Any]:
    """A page's figures of the map, as JSON values: counts, method, and what two dimensions keep."""
    return {
        "passages": len(points.rows),
        "all_passages": shown.num_passages,
        "questions": len(points.question_rows),
        "all_questions": shown.num_questions,
        "method": shown.config["method"],
        **{name: shown.meta[name] for name in ("variance_kept", "displacement_kept", "share_moved", "after_head")},
    }
