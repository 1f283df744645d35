from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.inspection.quantiles import Spread, in_doubling_bins, in_equal_bins, spread

counts = st.lists(st.integers(0, 5000), min_size=1, max_size=200).map(np.array)


def test_each_figure_is_one_of_the_counts():
    assert spread([1, 2, 3, 10]) == Spread(median=2, p95=10, max=10)


def test_doubling_bins_by_hand():
    bins = in_doubling_bins(np.array([0, 1, 1, 2, 3, 4, 8, 9]))
    assert [(bin_.first, bin_.last, bin_.count) for bin_ in bins] == [
        (0, 0, 1),
        (1, 1, 2),
        (2, 2, 1),
        (3, 4, 2),
        (5, 8, 1),
        (9, 16, 1),
    ]


def test_equal_bins_end_with_one_of_what_is_rare():
    bins = in_equal_bins(np.array([*range(10, 20)] * 20 + [5000]))
    assert [bin_.count for bin_ in bins] == [20] * 10 + [1]
    assert (bins[0].first, bins[-2].last, bins[-1].first, bins[-1].last) == (10, 19, 20, 5000)


@given(counts)
def test_every_count_is_in_one_bin_and_bins_adjoin(values):
    for bins in (in_equal_bins(values), in_doubling_bins(values)):
        assert sum(bin_.count for bin_ in bins) == len(values)
        for bin_, following in pairwise(bins):
            assert bin_.last + 1 == following.first
        for bin_ in bins:
            assert bin_.count == ((values >= bin_.first) & (values <= bin_.last)).sum()
        assert len(bins) <= 33
