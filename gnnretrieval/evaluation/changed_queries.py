"""The questions that one system answers better than another, and worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gnnretrieval.data.records import ScoredPassage


class Change(NamedTuple):
    """A question's value with the baseline, and with the system."""

    query: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """By how much it is better."""
        return self.after - self.before


def most_changed(
    after: Mapping[str, float], before: Mapping[str, float], count: int
) -> tuple[list[Change], list[Change]]:
    """The ``count`` questions that gained most, and those that lost most, largest change first; equal ones by id.

    Args:
        after: A measure's values by query, of a system.
        before: The baseline's, of the same queries.
        count: How many of each at most.
    """
    changes = sorted((Change(query, before[query], value) for query, value in after.items()), key=lambda one: one.query)
    changes.sort(key=lambda one: one.difference, reverse=True)
    helped = [one for one in changes if one.difference > 0][:count]
    changes.sort(key=lambda one: one.difference)
    return helped, [one for one in changes if one.difference < 0][:count]


def relevant_ranks(
    judged: Mapping[str, int], after: Sequence[ScoredPassage], before: Sequence[ScoredPassage]
) -> dict[str, tuple[int | None, int | None]]:
    """Ranks, from 1, of a question's relevant passages with the baseline and with the system, best with it first.

    Args:
        judged: Relevance by passage id.
        after: The system's ranking of the question.
        before: The baseline's.

    Returns:
        Rank before and after by passage id; None where the ranking lacks it.
    """
    ranks = [{passage.passage_id: rank for rank, passage in enumerate(ranking, 1)} for ranking in (before, after)]
    relevant = [passage for passage, relevance in judged.items() if relevance > 0]
    found = {passage: (ranks[0].get(passage), ranks[1].get(passage)) for passage in relevant}
    return dict(sorted(found.items(), key=lambda one: (one[1][1] or 10**9, one[1][0] or 10**9, one[0])))
