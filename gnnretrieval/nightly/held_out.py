"""The gate's questions: the newest ones, judged by clicks on what the served model showed.

Such clicks favour the served ranking in two ways. Nobody clicks what was not shown. And what is ranked high is examined
more often, so that a question whose answer is at rank 1 gets a label, and one whose answer is at rank 6 seldom does.

- Condensed lists (Sakai 2007, *Alternatives to Bpref*): passages that were not shown for a question are taken out of
  both rankings, so that they are neither a merit nor a fault.
- Weights: a question counts by the inverse of the probability that clicks give it a label (Horvitz and Thompson 1952;
  for clicks Joachims, Swaminathan and Schnabel 2017), at most 10 (clipping, Strehl et al. 2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.feedback.click_rates import ClickRates
from gnnretrieval.feedback.judging import label_chances
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.training.gnn.ladder import reciprocal_ranks

_MOST_WEIGHT = 10.0


class ShownPassage(NamedTuple):
    """A passage that was shown for a question.

    Attributes:
        row: Its row.
        examined: Expected examinations.
        is_relevant: Whether clicks call it relevant.
    """

    row: int
    examined: float
    is_relevant: bool


class HeldOutQuestions(NamedTuple):
    """Questions with a relevant passage by their clicks.

    Attributes:
        relevant: Rows of the relevant passages of each of ``q`` questions.
        shown: Rows of the passages that were shown for each; None where the log does not say.
        weights: ``(q,)`` inverse of the probability of a label, from 1 to 10; ones where the log does not say.
    """

    relevant: list[list[int]]
    shown: list[list[int]] | None
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        shown: Sequence[Sequence[ShownPassage]],
        rates: ClickRates,
        settings: FeedbackSettings,
        has_lists: bool = True,
    ) -> HeldOutQuestions:
        """The questions for which these passages were shown.

        Args:
            shown: Passages of each question, at least one of them relevant.
            rates: Click rates of the training period.
            settings: Thresholds of the judgements.
            has_lists: Whether the log has what was shown without a click.
        """
        relevant = [[one.row for one in its if one.is_relevant] for its in shown]
        if not has_lists:
            return cls(relevant, None, np.ones(len(relevant)))
        examined = np.array([sum(one.examined for one in its if one.is_relevant) for its in shown], dtype=np.float64)
        chances = label_chances(examined, rates, settings)
        weights = 1 / np.maximum(chances, 1 / _MOST_WEIGHT)
        return cls(relevant, [[one.row for one in its] for its in shown], weights)

    def ranks(self, vectors: Tensor, queries: Tensor) -> RanksOfModel:
        """How a model ranks.

        Args:
            vectors: ``(m, d)`` passage vectors.
            queries: ``(q, d)``.
        """
        whole = reciprocal_ranks(vectors, queries, self.relevant)
        return RanksOfModel(
            whole if self.shown is None else reciprocal_ranks(vectors, queries, self.relevant, self.shown), whole
        )


class RanksOfModel(NamedTuple):
    """How a model ranks the held-out questions.

    Attributes:
        among_shown: ``(q,)`` RR@10 of each, among the passages that were shown for it.
        whole: ``(q,)`` RR@10 among all passages.
    """

    among_shown: NDArray[np.float64]
    whole: NDArray[np.float64]
