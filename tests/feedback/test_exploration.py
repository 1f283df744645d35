"""FairPairs: small swaps by chance, from which position bias is estimated."""

from collections import Counter
from random import Random

import pytest

from gnnretrieval.feedback import estimate_propensities, fair_pairs
from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.events import Shown


def test_nothing_moves_by_more_than_one_rank_and_neighbours_are_as_often_in_either_order():
    rng, above, moved = Random(0), Counter[int](), Counter[int]()
    for _ in range(4000):
        shown = fair_pairs(range(7), rng)
        assert sorted(shown) == list(range(7))
        assert all(abs(one - rank) <= 1 for rank, one in enumerate(shown))
        moved.update(one for rank, one in enumerate(shown) if one != rank)
        above.update(first for first in range(6) if shown.index(first) > shown.index(first + 1))
    # A pair is formed in every second ranking and then swapped in every second one; passages inside are in two pairs.
    assert [above[first] / 4000 for first in range(6)] == pytest.approx([0.25] * 6, abs=0.03)
    assert [moved[one] / 4000 for one in range(7)] == pytest.approx([0.25, *[0.5] * 5, 0.25], abs=0.03)


@pytest.mark.parametrize("count", [0, 1])
def test_a_ranking_without_neighbours_stays(count: int):
    assert fair_pairs(range(count), Random(0)) == list(range(count))


def clicks(rankings: int, explores: bool) -> list[Impression]:
    """Lists of five passages for 40 questions; the k-th position is examined with probability 1/k."""
    rng, found = Random(1), []
    for number in range(rankings):
        question = number % 40
        ranking = [(f"{question}-{rank}", 0.9 if rank in (question % 5, 2) else 0.2) for rank in range(5)]
        shown = [
            Shown(passage, position, rng.random() < attraction / position, None, 0)
            for position, (passage, attraction) in enumerate(fair_pairs(ranking, rng) if explores else ranking, 1)
        ]
        found.append(Impression(str(question), float(number), tuple(sorted(shown))))
    return found


def test_position_bias_is_estimated_from_the_swaps_and_not_without_them():
    assert not estimate_propensities(clicks(8000, explores=False)).is_estimated
    found = estimate_propensities(clicks(8000, explores=True))
    assert found.is_estimated
    assert [one.propensity for one in found.figures] == pytest.approx([1 / k for k in range(1, 6)], rel=0.25)
