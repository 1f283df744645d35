"""The ladder climbed on with several vectors a passage (:func:`gnnretrieval.nn.label_messages.several_vectors`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.nn.label_messages import Messages, Sides
from gnnretrieval.training.gnn.ladder import (
    MEANS,
    PRIORS,
    QUESTIONS,
    REJECTIONS,
    SCALINGS,
    SIDES,
    STEPS,
    UPDATE_SIZES,
    Climb,
    Ladder,
    kinds_of_head,
)


def climb_with_questions(
    measure: Callable[[Messages], NDArray[np.float64]],
    start: Messages,
    measured: Mapping[Messages, NDArray[np.float64]],
    *,
    steps: Sequence[int] = STEPS,
    sides: Sequence[Sides] = SIDES,
    rejections: Sequence[tuple[int, float]] = REJECTIONS,
    update_sizes: Sequence[float] = UPDATE_SIZES,
    of_dev: int | None = None,
    by_rank: Callable[[Messages], NDArray[np.float64]] | None = None,
) -> Climb:
    """Climb on from the messages for one vector a passage, with the passage's training questions as further vectors.

    The first rung adds the questions to the messages that were kept. The second starts from heads alone, because what
    is good for one vector a passage, such as the mean of its questions, need not be good beside these. Then label mean,
    rejection, passage updates, prior and local scaling are tried again, the first three with every weight of the
    questions.

    Args:
        measure: As in :func:`gnnretrieval.training.gnn.ladder.climb`, as are the others.
        start: Messages for one vector a passage.
        measured: As in :class:`Climb`: the settings that were tried for them, which count in the p-value too.
        steps: Training steps of the heads.
        sides: Kinds of heads.
        rejections: Rounds and step sizes of rejection.
        update_sizes: Step sizes of passage updates.
        of_dev: Number of dev's own questions.
        by_rank: Log rank of each question.

    Returns:
        The choice; its messages are ``start`` if the questions gain nothing.
    """
    ladder = Ladder(measure, by_rank or measure, start=start)
    ladder.tried.update(measured)
    ladder.rung("training questions", _with_questions([start]))
    heads = (Messages(), *kinds_of_head(steps, sides))
    ladder.rung("training questions and head", _with_questions(heads))
    if not ladder.kept.questions:
        return ladder.result()
    kept = ladder.kept
    if not kept.passes:
        ladder.rung("label mean with questions", _with_questions([kept._replace(mean=mean) for mean in MEANS]))
        ladder.rung("rejection with questions", _with_questions(ladder.with_rejections(rejections)))
    ladder.rung("passage updates with questions", _with_questions(ladder.with_updates(update_sizes)))
    ladder.rung("prior with questions", [ladder.kept._replace(prior=prior) for prior in PRIORS], of_dev)
    ladder.rung("local scaling with questions", [ladder.kept._replace(scaling=scaling) for scaling in SCALINGS])
    return ladder.result()


def _with_questions(choices: Sequence[Messages]) -> list[Messages]:
    """Each with every weight of the questions."""
    return [messages._replace(questions=weight) for messages in choices for weight in QUESTIONS]
