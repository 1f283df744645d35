"""The questions that a system answers better or worse than its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gnnretrieval.data.records import ScoredPassage


class ChangedQuery(NamedTuple):
    """A question's value of a measure with the baseline (``before``) and with the system (``after``)."""

    query: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """The gain of the system: ``after - before``."""
        return self.after - self.before


def most_changed(
    after: Mapping[str, float], before: Mapping[str, float], count: int
) -> tuple[list[ChangedQuery], list[ChangedQuery]]:
    """The questions that gained most, and those that lost most, largest change first and equal changes by id.

    Args:
        after: The system's values of a measure, by query id.
        before: The baseline's values, for the same queries.
        count: Length of each list, at most.

    Returns:
        The questions that gained, and those that lost.
    """
    changes = [ChangedQuery(query, before[query], after[query]) for query in sorted(after)]
    changes.sort(key=lambda change: change.difference, reverse=True)
    helped = [change for change in changes if change.difference > 0][:count]
    changes.sort(key=lambda change: change.difference)
    return helped, [change for change in changes if change.difference < 0][:count]


def relevant_ranks(
    judged: Mapping[str, int], after: Sequence[ScoredPassage], before: Sequence[ScoredPassage]
) -> dict[str, tuple[int | None, int | None]]:
    """Ranks of a question's relevant passages with the baseline and with the system.

    Args:
        judged: Relevance by passage id.
        after: The system's ranking for the question.
        before: The baseline's ranking.

    Returns:
        Rank before and after, from 1, by passage id, sorted by the rank after; None where a ranking lacks the passage.
    """
    ranks = [{passage.passage_id: rank for rank, passage in enumerate(ranking, 1)} for ranking in (before, after)]
    relevant = [passage for passage, relevance in judged.items() if relevance > 0]
    both = {passage: (ranks[0].get(passage), ranks[1].get(passage)) for passage in relevant}
    return dict(sorted(both.items(), key=lambda item: (item[1][1] or 10**9, item[1][0] or 10**9, item[0])))
