"""Rankings with small variations, by which clicks tell position bias from relevance."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Ranked = TypeVar("Ranked")


def fair_pairs(ranking: Sequence[Ranked], rng: Random) -> list[Ranked]:
    """Swap neighbours of a ranking at random: FairPairs (Radlinski and Joachims 2006, algorithm 1).

    The ranks are paired, from the first or from the second one on, and each pair is swapped with probability 1/2. So
    nothing moves by more than one rank, and of two neighbours each is above the other equally often.

    Args:
        ranking: Ids or other items, best first.
        rng: Source of chance.
    """
    shown = list(ranking)
    for first in range(rng.randrange(2), len(shown) - 1, 2):
        if rng.randrange(2):
            shown[first], shown[first + 1] = shown[first + 1], shown[first]
    return shown
