"""The weight of a passage's nearest training question beside its vector, chosen on dev after the messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import gains_in_one, log_ranks, mean_and_error, reciprocal, together

WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)


class QuestionWeight(NamedTuple):
    """The best weight of the nearest question on dev (:mod:`gnnretrieval.index.nearest_questions`).

    Attributes:
        weight: The weight.
        kept: Whether it gains as a rung of the ladder must.
        gain: Mean gain in RR@10 over the messages alone.
        error: Its standard error.
        rank_gain: Mean gain in log rank.
        rank_error: Its standard error.
    """

    weight: float
    kept: bool
    gain: float
    error: float
    rank_gain: float
    rank_error: float

    def described(self) -> dict[str, Any]:
        """For a model's metadata; the weight is 0 unless it is kept."""
        finite = {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}
        return {**finite, "weight": self.weight if self.kept else 0.0, "tried": self.weight}

    def line(self) -> str:
        """The choice as text."""
        best = f"training questions beside the passages: log2 rank {-self.rank_gain:+.2f}, RR@10 {100 * self.gain:+.1f}"
        if self.kept:
            return f"{best} by weight {self.weight:g}: search --nearest-questions {self.weight:g} uses them"
        return f"{best} by weight {self.weight:g}: left out"


def choose_question_weight(judged: Sequence[Judged], messages: Messages) -> QuestionWeight:
    """Choose the weight of the nearest question on dev questions, by the rule of the ladder's rungs.

    Args:
        judged: The dev questions, and cross-validated training questions where dev's are few.
        messages: What training kept.
    """
    ranks = np.concatenate([part.ranks_beside_questions(messages, (0.0, *WEIGHTS)) for part in judged], axis=1)
    bounds = np.cumsum([len(part.relevant) for part in judged])[:-1]

    def weighted(values: Any) -> Any:
        return np.concatenate([part.weighted(row) for part, row in zip(judged, np.split(values, bounds), strict=True)])

    reciprocals, logs = ([weighted(of(row)) for row in ranks] for of in (reciprocal, log_ranks))
    add = together(reciprocals[0], logs[0])
    totals = [float(add(*pair).mean()) for pair in zip(reciprocals[1:], logs[1:], strict=True)]
    best = 1 + int(np.argmax(totals))
    gain, rank_gain = mean_and_error(reciprocals[best] - reciprocals[0]), mean_and_error(logs[best] - logs[0])
    return QuestionWeight(WEIGHTS[best - 1], gains_in_one(gain, rank_gain), *gain, *rank_gain)
