import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.pages.axes import Axis, Frame, percent, plain, span, ticks


def test_labels():
    assert [plain(12000), plain(0.25), plain(1e-5)] == ["12,000", "0.25", "1e-05"]
    assert [percent(0.25), percent(0.025), percent(1)] == ["25 %", "2.5 %", "100 %"]


def test_ticks_are_round_and_within():
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(-100, 100, 5) == [-100, -50, 0, 50, 100]
    assert ticks(0, 640, 5) == [0, 200, 400, 600]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_there_are_two_to_eight_ticks_of_any_span(low, wide):
    found = ticks(low, low + wide, 5)
    assert 2 <= len(found) <= 8
    assert all(low - 1e-6 * wide <= tick <= low + wide + 1e-6 * wide for tick in found)


def test_an_axis_holds_its_values_also_where_they_are_equal():
    assert span(Axis("", low=0), [1, 2]) == (0, pytest.approx(2.06, abs=0.07))
    low, high = span(Axis(""), [3.0, 3.0])
    assert low < 3 < high
    low, high = span(Axis(""), [])
    assert low < high


def test_first_and_last_value_lie_at_the_ends_of_the_axes():
    frame = Frame((0, 10), (0, 2), Axis("x"), Axis("y"))
    assert frame.across(0) == frame.left
    assert frame.across(10) == frame.left + frame.wide
    assert frame.down(0) == frame.bottom
    assert frame.down(1) == pytest.approx((frame.bottom + frame.down(2)) / 2)
