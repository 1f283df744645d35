"""Plots of a page as SVG, without script: the page's stylesheet gives the colours, and values show on hover."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gnnretrieval.pages.axes import (
    BOTTOM,
    HEIGHT,
    LETTER,
    TOP,
    WIDTH,
    Axis,
    Frame,
    colour,
    plain,
    span,
    svg,
    text,
    titled,
)
from gnnretrieval.pages.html import Html, element, escape, short

_NAME_LETTER = 7.2  # mean width of a character of a name, which may have capitals
_ROW = 24  # height of a row of dots or horizontal bars
_HOVERED = 250  # largest number of points with a value on hover: a pointer cannot tell more apart


class Line(NamedTuple):
    """A line of a plot.

    Attributes:
        name: Name in the legend.
        x: Horizontal values, ascending.
        y: Vertical values, one per ``x``; a value that is not finite is a gap.
        series: Number of the colour.
        look: ``line``; ``thin``; ``points``, a line with a dot at each point; ``steps``, level around each ``x``;
            ``area``, steps filled down to zero.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    series: int = 0
    look: str = "line"


class Dot(NamedTuple):
    """A row of a dot plot: a value with its interval."""

    name: str
    value: float
    low: float
    high: float
    series: int = 0


def line_plot(
    said: str, lines: Sequence[Line], x: Axis, y: Axis, marked: Iterable[tuple[float, float, str]] = ()
) -> Html:
    """Lines over one pair of axes, with a legend where there are several.

    Args:
        said: Text of the plot for screen readers.
        lines: The lines, the last on top.
        x: The horizontal axis.
        y: The vertical axis.
        marked: Points to mark with a ring: ``x``, ``y``, and what they are.
    """
    points = list(marked)
    frame = Frame(
        span(x, [value for line in lines for value in line.x]),
        span(y, [value for line in lines for value in line.y if math.isfinite(value)]),
        x,
        y,
    )
    drawn = [part for line in lines for part in _drawn(line, frame)]
    drawn += [
        titled(f'<circle cx="{frame.across(at):.1f}" cy="{frame.down(value):.1f}" r="7" class="s4 stroke"', what)
        for at, value, what in points
    ]
    named = [(line.name, line.series) for line in lines if line.look != "thin"]
    return element("div", _legend(named), svg(said, HEIGHT, [*frame.parts(), *drawn]), class_="plot")


def bar_plot(
    said: str,
    names: Sequence[str],
    values: Sequence[float],
    x: str,
    y: str,
    log: bool = False,
    series: Sequence[int] | None = None,
) -> Html:
    """Vertical bars with a name below each.

    Args:
        said: Text of the plot for screen readers.
        names: Name of each bar; where there is no room for all, some are left out.
        values: Height of each bar.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        log: Whether the vertical axis is logarithmic.
        series: Number of each bar's colour; None: 0.
    """

    def height(value: float) -> float:
        return math.log10(value) if log else value

    positive = [value for value in values if value > 0] or [1.0]
    bottom = math.floor(math.log10(min(positive))) - 0.3 if log else 0.0
    top = math.ceil(height(max(positive))) if log else height(max(positive))
    up = Axis(y, (lambda power: plain(10**power)) if log else plain, bottom, max(top, bottom + 1e-9))
    frame = Frame((0.0, float(max(len(names), 1))), span(up, []), Axis(x), up, whole_powers=log)
    parts = list(frame.parts(ticks_across=False))
    every = max(1, math.ceil(max(map(len, names), default=1) * LETTER * 1.2 / (frame.wide / max(len(names), 1))))
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        left, right = frame.across(place + 0.1), frame.across(place + 0.9)
        if value > 0:
            at = frame.down(height(value))
            parts.append(
                titled(
                    f'<rect x="{left:.1f}" y="{at:.1f}" width="{right - left:.1f}" height="{frame.bottom - at:.1f}" '
                    f'class="{colour(series[place] if series else 0)} fill"',
                    f"{name}: {plain(value)}",
                )
            )
        if not place % every:
            parts.append(text((left + right) / 2, frame.bottom + 15, name, "middle"))
    return element("div", svg(said, HEIGHT, parts), class_="plot")


def lying_bars(
    said: str, rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], parts_of_all: Mapping[str, int] | None = None
) -> Html:
    """Horizontal bars on one scale, each of one part with its label beside it, or of several parts.

    Args:
        said: Text of the plot for screen readers.
        rows: Name of each bar, and length and label of each of its parts.
        parts_of_all: Name of each part, with the number of its colour; None: every bar has one part.
    """
    named = parts_of_all or {"": 0}
    left = _name_width([name for name, _ in rows])
    longest = max((sum(length for length, _ in parts) for _, parts in rows), default=0) or 1
    ends = max((len(parts[0][1]) for _, parts in rows if len(named) == 1), default=0) * LETTER + 6
    drawn: list[Html] = []
    for row, (name, parts) in enumerate(rows):
        at, top = float(left), row * _ROW + 4
        drawn.append(text(left - 8, top + 12, _fitting(name), "end", "name"))
        for series, (length, what) in zip(named.values(), parts, strict=True):
            width = length / longest * (WIDTH - left - ends)
            shape = f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="16" class="{colour(series)} fill"'
            drawn.append(titled(shape, f"{name}: {what}"))
            at += width
        if len(named) == 1:
            drawn.append(text(at + 6, top + 12, parts[0][1]))
    return element("div", _legend(list(named.items())), svg(said, len(rows) * _ROW + 4, drawn), class_="plot")


def dot_plot(said: str, rows: Sequence[Dot], axis: Axis, level: float | None = None) -> Html:
    """One row per dot, with its interval.

    Args:
        said: Text of the plot for screen readers.
        rows: The dots, from the top.
        axis: The horizontal axis.
        level: A value to compare the dots with, drawn as a vertical line.
    """
    ends = [end for row in rows for end in (row.low, row.high, row.value)] + ([] if level is None else [level])
    height = len(rows) * _ROW + TOP + BOTTOM
    frame = Frame(
        span(axis, ends), (0.0, float(len(rows))), axis, Axis(""), height, _name_width([r.name for r in rows])
    )
    parts = list(frame.parts(ticks_up=False))
    if level is not None:
        at = frame.across(level)
        parts.append(Html(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{frame.bottom}" class="level"/>'))
    for place, row in enumerate(rows):
        down = TOP + (place + 0.5) * _ROW
        low, high, value = map(frame.across, (row.low, row.high, row.value))
        what = f"{row.name}: {axis.label(row.value)} [{axis.label(row.low)}, {axis.label(row.high)}]"
        shapes = (
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{down}" y2="{down}" class="stroke"/>'
            f'<circle cx="{value:.1f}" cy="{down}" r="4.5" class="fill"/>'
            f'<rect x="{frame.left}" y="{down - _ROW / 2}" width="{frame.wide:.1f}" height="{_ROW}" class="over"/>'
        )
        parts.append(Html(f'<g class="{colour(row.series)}"><title>{escape(what)}</title>{shapes}</g>'))
        parts.append(text(frame.left - 8, down + 4, _fitting(row.name), "end", "name"))
    return element("div", svg(said, height, parts), class_="plot")


def _drawn(line: Line, frame: Frame) -> Iterator[Html]:
    own = colour(line.series)
    runs = list(_runs(line))
    for run in runs:
        if line.look in ("steps", "area"):
            edges = [frame.across(edge) for edge in _edges([x for x, _ in run])]
            path = f"M{edges[0]:.1f} {frame.down(run[0][1]):.1f}"
            for (_, value), edge in zip(run, edges[1:], strict=True):
                path += f"V{frame.down(value):.1f}H{edge:.1f}"
            if line.look == "area":
                zero = frame.down(max(frame.y_span[0], 0.0))
                yield titled(f'<path d="{path}V{zero:.1f}H{edges[0]:.1f}Z" class="{own} area"', line.name)
        else:
            path = "M" + "L".join(f"{frame.across(x):.1f} {frame.down(y):.1f}" for x, y in run)
        look = "stroke thin" if line.look == "thin" else "stroke"
        yield titled(f'<path d="{path}" class="{own} {look}"', line.name)
    points = [point for run in runs for point in run]
    if line.look == "points" or (line.look == "line" and len(points) <= _HOVERED):
        seen = "fill" if line.look == "points" else "over"
        for x, y in points:
            shape = f'<circle cx="{frame.across(x):.1f}" cy="{frame.down(y):.1f}" r="{3 if seen == "fill" else 6}"'
            what = f"{line.name}: {frame.y.label(y)} at {frame.x.title} {frame.x.label(x)}"
            yield titled(f'{shape} class="{own} {seen}"', what)


def _runs(line: Line) -> Iterator[list[tuple[float, float]]]:
    """The runs of points between gaps."""
    run: list[tuple[float, float]] = []
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            run.append((x, y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _edges(x: Sequence[float]) -> list[float]:
    """Edges of the steps around ``x``: half-way between neighbours."""
    if len(x) == 1:
        return [x[0] - 0.5, x[0] + 0.5]
    inner = [(one + other) / 2 for one, other in pairwise(x)]
    return [2 * x[0] - inner[0], *inner, 2 * x[-1] - inner[-1]]


def _legend(named: Sequence[tuple[str, int]]) -> Html:
    if len(named) < 2:
        return Html()
    entries = dict.fromkeys(named)
    return element("ul", *(element("li", name, class_=colour(series)) for name, series in entries), class_="legend")


def _name_width(names: Sequence[str]) -> float:
    return max((len(_fitting(name)) for name in names), default=0) * _NAME_LETTER + 12


def _fitting(name: str) -> str:
    return short(name, int(0.42 * WIDTH / _NAME_LETTER))
