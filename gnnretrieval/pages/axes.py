"""Axes and scales of a plot, and the SVG shapes that plots are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gnnretrieval.pages.html import Html, escape, join

WIDTH, HEIGHT = 440, 250  # size of the drawing in SVG units; the page scales it
TOP, RIGHT, BOTTOM = 10, 14, 42
LETTER = 6.4  # mean width of a character of a label
_COLOURS = 8  # colours in the stylesheet


def colour(series: int) -> str:
    """CSS class of a series: its colour, with dashes after the last colour was used."""
    return f"s{series % _COLOURS}" + (" again" if series >= _COLOURS else "")


def plain(value: float) -> str:
    """A number as a label: ``12,000``, ``0.25``."""
    return f"{value:,.6g}"


def percent(value: float) -> str:
    """A share as a label: ``25 %``."""
    return f"{100 * value:.4g} %"


class Axis(NamedTuple):
    """An axis.

    Attributes:
        title: What it measures.
        label: Writes a value as text.
        low: Its first value; None: chosen from the data.
        high: Its last value; None: chosen from the data.
    """

    title: str
    label: Callable[[float], str] = plain
    low: float | None = None
    high: float | None = None


class Frame:
    """The two axes of a plot; maps values to places on the drawing.

    Args:
        x_span: First and last value of the horizontal axis.
        y_span: First and last value of the vertical axis.
        x: The horizontal axis.
        y: The vertical axis.
        height: Height of the drawing.
        left: Where the horizontal axis begins; None: right of the vertical axis's labels.
        whole_powers: Whether the vertical values are logarithms; then only whole ones have labels.
    """

    def __init__(
        self,
        x_span: tuple[float, float],
        y_span: tuple[float, float],
        x: Axis,
        y: Axis,
        height: float = HEIGHT,
        left: float | None = None,
        whole_powers: bool = False,
    ) -> None:
        self.x_span, self.y_span, self.x, self.y = x_span, y_span, x, y
        self.x_ticks = ticks(*x_span, 5)
        self.y_ticks = ticks(*y_span, 5)
        if whole_powers:
            self.y_ticks = [float(power) for power in range(math.ceil(y_span[0]), math.floor(y_span[1]) + 1)]
        widest = max((len(y.label(value)) for value in self.y_ticks), default=1)
        self.left = left if left is not None else widest * LETTER + 8 + (18 if y.title else 0)
        self.wide = WIDTH - self.left - RIGHT
        self.bottom = height - BOTTOM

    def across(self, value: float) -> float:
        """Distance of ``value`` from the left edge."""
        low, high = self.x_span
        return self.left + (value - low) / (high - low) * self.wide

    def down(self, value: float) -> float:
        """Distance of ``value`` from the top edge."""
        low, high = self.y_span
        return self.bottom - (value - low) / (high - low) * (self.bottom - TOP)

    def parts(self, ticks_across: bool = True, ticks_up: bool = True) -> Iterator[Html]:
        """Grid lines, labels and titles of the axes."""
        for value in self.y_ticks if ticks_up else ():
            at = self.down(value)
            yield Html(f'<line x1="{self.left:.1f}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
            yield text(self.left - 6, at + 4, self.y.label(value), "end")
        for value in self.x_ticks if ticks_across else ():
            at = self.across(value)
            if not ticks_up:
                yield Html(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{self.bottom}" class="grid"/>')
            yield text(at, self.bottom + 15, self.x.label(value), "middle")
        yield text(self.left + self.wide / 2, self.bottom + 34, self.x.title, "middle")
        if self.y.title:
            middle = (self.bottom + TOP) / 2
            turned = f'transform="rotate(-90 11 {middle:.0f})" text-anchor="middle"'
            yield Html(f'<text x="11" y="{middle:.0f}" {turned}>{escape(self.y.title)}</text>')


def span(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    """First and last value of an axis; where they are not fixed, with some room around ``values``."""
    low = axis.low if axis.low is not None else min(values, default=0.0)
    high = axis.high if axis.high is not None else max(values, default=1.0)
    pad = 0.06 * (high - low)
    low -= pad if axis.low is None else 0
    high += pad if axis.high is None else 0
    return (low, high) if high > low else (low - abs(low) * 0.1 - 1e-9, high + abs(high) * 0.1 + 1e-9)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round values between ``low`` and ``high``, approximately ``about`` of them."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [float(f"{(first + number) * step:.12g}") for number in range(count + 1)]


def text(x: float, y: float, text: str, anchor: str = "start", class_: str = "") -> Html:
    """A label at ``(x, y)``."""
    look = f' class="{class_}"' if class_ else ""
    return Html(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(text)}</text>')


def titled(shape: str, what: str) -> Html:
    """Close a started shape, with ``what`` as its text on hover."""
    return Html(f"{shape}><title>{escape(what)}</title></{shape[1:].split()[0]}>")


def svg(said: str, height: float, parts: Iterable[Html]) -> Html:
    """The drawing; ``said`` is its text for screen readers."""
    return Html(f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(said)}">{join(parts)}</svg>')
