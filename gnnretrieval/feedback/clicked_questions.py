"""Questions that are labelled by clicks on shown passages, and how they count when models are compared by them.

These clicks favour the served ranking in two ways. Nobody clicks what was not shown. And high ranks are
examined more often: a question with its answer at rank 1 gets a label, and one with its answer at rank 6 seldom does.

- Condensed lists (Sakai 2007, *Alternatives to Bpref*): passages that were not shown for a question are taken out of
  all rankings, so that they are neither a merit nor a fault.
- Weights: a question counts by the inverse of the probability that clicks give it a label (Horvitz and Thompson 1952;
  for clicks Joachims, Swaminathan and Schnabel 2017), at most 10 (clipping, Strehl et al. 2010).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.errors import ArtifactError
from gnnretrieval.feedback.click_rates import ClickRates
from gnnretrieval.feedback.importing import ImportedFeedback, open_feedback
from gnnretrieval.feedback.judgement_table import read_judgements
from gnnretrieval.feedback.judging import label_chances
from gnnretrieval.feedback.settings import FeedbackSettings

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


class ClickedQuestions(NamedTuple):
    """Questions with a relevant passage by their clicks.

    Attributes:
        relevant: Rows of the relevant passages of each of ``q`` questions.
        shown: Rows of the passages that were shown for each; None where the log does not say.
        weights: ``(q,)`` inverse of the probability of a label, from 1 to 10; 1 where the log does not say.
    """

    relevant: list[list[int]]
    shown: list[list[int] | None]
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        shown: Sequence[Sequence[ShownPassage]],
        rates: ClickRates,
        settings: FeedbackSettings,
        has_lists: bool = True,
    ) -> ClickedQuestions:
        """The questions for which these passages were shown.

        Args:
            shown: Passages of each question. A question without a relevant one has no label.
            rates: Click rates of the training period.
            settings: Thresholds of the judgements.
            has_lists: Whether the log also has shown passages without a click.
        """
        relevant = [[passage.row for passage in passages if passage.is_relevant] for passages in shown]
        if not has_lists:
            return cls(relevant, [None] * len(relevant), np.ones(len(relevant)))
        examined = [sum(passage.examined for passage in passages if passage.is_relevant) for passages in shown]
        chances = label_chances(np.array(examined, dtype=np.float64), rates, settings)
        weights = np.where([bool(rows) for rows in relevant], 1 / np.maximum(chances, 1 / _MOST_WEIGHT), 1.0)
        return cls(relevant, [[passage.row for passage in passages] or None for passages in shown], weights)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The weights with a mean of 1 ``(q,)``: times these, values have their weighted mean."""
        shares: NDArray[np.float64] = self.weights / self.weights.mean()
        return shares

    def only(self, rows: Iterable[int]) -> ClickedQuestions:
        """The questions at these positions."""
        kept = [*rows]
        return ClickedQuestions(
            [self.relevant[row] for row in kept], [self.shown[row] for row in kept], self.weights[kept]
        )


def open_clicks(dataset: Dataset) -> ImportedFeedback | None:
    """The clicks behind a dataset's labels; None if it is not from event logs with shown passages."""
    try:
        feedback = open_feedback(dataset.path)
    except ArtifactError:
        return None
    return feedback if all(log.has_lists for log in feedback.report.logs) else None


def clicked_questions(
    feedback: ImportedFeedback, split: str, row_of: Mapping[str, int], query_ids: Iterable[str]
) -> ClickedQuestions:
    """The questions ``query_ids`` of a split. One that the split lacks has weight 1 and ranks all passages.

    Args:
        feedback: A dataset from event logs.
        split: Name of the split.
        row_of: Rows of the passages by id.
        query_ids: Ids of the questions.

    Raises:
        InputError: the table of judgements is missing or damaged.
        ArtifactError: the report is missing or damaged.
    """
    table, report = read_judgements(feedback.path, split), feedback.report
    shown = [
        [ShownPassage(row_of[pair.passage], pair.examined, pair.is_relevant) for pair in table.get(query, ())]
        for query in query_ids
    ]
    return ClickedQuestions.of(shown, report.rates, feedback.settings, all(log.has_lists for log in report.logs))
