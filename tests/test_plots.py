import re

import pytest

from gnnretrieval.pages.axes import Axis
from gnnretrieval.pages.plots import Dot, Line, bar_plot, dot_plot, line_plot, lying_bars
from tests.html_page import EVIL, Page


def circles(plot: str, look: str) -> list[tuple[float, float]]:
    found = re.findall(rf'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" class="s\d {look}"', plot)
    return [(float(x), float(y)) for x, y in found]


def test_points_lie_where_their_values_say_and_name_them():
    line = Line("recall", [1, 2, 3], [0.0, 0.5, 1.0], look="points")
    plot = line_plot("recall by rank", [line], Axis("rank", low=1, high=3), Axis("recall", low=0, high=1))
    (x1, y1), (x2, y2), (x3, y3) = circles(plot, "fill")
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert min(x2 - x1, y1 - y2) > 50
    assert "recall: 0.5 at rank 2\n" in Page(plot).hovered
    assert Page(plot).attributes("aria-label") == ["recall by rank"]


def test_what_is_not_finite_is_a_gap():
    line = Line("loss", [1, 2, 3, 4], [1.0, float("nan"), 2.0, 3.0])
    plot = line_plot("", [line], Axis("step"), Axis("loss"))
    paths = re.findall(r'<path d="([^"]+)"', plot)
    assert [len(re.findall("[ML]", path)) for path in paths] == [1, 2]
    assert "nan" not in plot


def test_a_legend_names_several_lines_by_their_colours_and_one_has_none():
    def plot(count):
        lines = [Line(f"line {n}", [0, 1], [n, n], series=n) for n in range(count)]
        return line_plot("", lines, Axis("x"), Axis("y"))

    assert '<li class="s1">line 1</li>' in plot(2)
    assert "<li " not in plot(1)
    assert '<li class="s0 again">line 8</li>' in plot(9)


def test_steps_stand_around_their_values_and_an_area_goes_down_to_zero():
    frame = {"x": Axis("x", low=0, high=4), "y": Axis("y", low=-1, high=1)}
    plot = line_plot("", [Line("a", [1, 2, 3], [1, 1, -1], look="area")], **frame)
    area, outline = re.findall(r'<path d="([^"]+)"', plot)
    assert outline.count("H") == 3
    top, zero = (float(value) for value in re.search(r"M[\d.]+ ([\d.]+).*V([\d.]+)H[\d.]+Z", area).groups())
    low = float(re.findall(r"V([\d.]+)", outline)[-1])
    assert low - zero == pytest.approx(zero - top, abs=0.2)


def test_bars_by_logarithm_grow_by_the_same_for_a_factor_and_none_is_no_bar():
    plot = bar_plot("", ["0", "1", "2", "3"], [0, 10, 100, 1000], "degree", "passages", log=True)
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"', plot)]
    assert len(heights) == 3
    assert abs((heights[1] - heights[0]) - (heights[2] - heights[1])) < 0.2
    assert "1: 10\n2: 100\n3: 1,000\n" in Page(plot).hovered


def test_parts_of_lying_bars_are_as_long_as_they_count():
    parts = {"won": 0, "tied": 6, "lost": 4}
    plot = lying_bars("", [("gnn", [(10, "10 won"), (20, "20 tied"), (5, "5 lost")])], parts)
    won, tied, lost = (float(width) for width in re.findall(r'width="([\d.]+)"', plot))
    assert abs(tied - 2 * won) < 0.2
    assert abs(won - 2 * lost) < 0.2
    assert "gnn: 20 tied\n" in Page(plot).hovered


def test_dots_say_value_and_interval_and_stand_in_the_middle_of_it():
    plot = dot_plot("", [Dot("gnn", 10, 8, 12), Dot("bm25", -1, -3, 1)], Axis("difference"), level=0)
    assert "gnn: 10 [8, 12]\nbm25: -1 [-3, 1]\n" in Page(plot).hovered
    low, high = map(
        float, re.search(r'<line x1="([\d.]+)" x2="([\d.]+)" y1="[\d.]+" y2="[\d.]+" class="stroke"', plot).groups()
    )
    (at,) = {float(x) for x in re.findall(r'<circle cx="([\d.]+)" cy="22.0"', plot)}
    assert abs(at - (low + high) / 2) < 0.2


def test_names_are_escaped_and_long_ones_cut():
    plots = [
        line_plot(EVIL, [Line(EVIL, [1], [1])] * 2, Axis(EVIL), Axis(EVIL), [(1, 1, EVIL)]),
        bar_plot(EVIL, [EVIL], [1], EVIL, EVIL),
        lying_bars(EVIL, [(EVIL, [(1, EVIL)])]),
        dot_plot(EVIL, [Dot(EVIL, 1, 1, 1)], Axis(EVIL)),
    ]
    for plot in plots:
        page = Page(plot)
        assert page.faults == []
        assert {"script", "img"}.isdisjoint(page.tags())
        assert EVIL in page.hovered
