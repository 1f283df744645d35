"""The questions that one system answers better than another, and worse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
