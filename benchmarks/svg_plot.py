"""Line plots as SVG, small enough to keep beside their tables in the repository."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gnnretrieval.pages.axes import ticks

_COLOURS = ("#2563a8", "#6b7280", "#d9730d", "#2f855a", "#9b2c8f")

Lines = Mapping[str, Sequence[tuple[float, float]]]


class _Box(NamedTuple):
    """Size of a plot, and the margins around its lines."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def down(self, value: float, low: float, high: float) -> float:
        """Vertical place of ``value`` on an axis from ``low`` to ``high``."""
        return self.top + (high - value) / (high - low) * (self.height - self.top - self.bottom)


_ONE = _Box(560, 320, 60, 20, 40, 55)
_MANY = _Box(640, 300, 60, 150, 40, 50)  # names of the lines on the right


def line_plot(
    title: str,
    x: Sequence[float],
    y: Sequence[float],
    deviation: Sequence[float],
    labels: tuple[str, str],
    levels: Mapping[str, float],
) -> str:
    """One line over evenly spaced values of ``x``, with a bar of ± deviation at each, and horizontal levels to compare.

    Args:
        title: Title above the plot.
        x: Values that the horizontal axis shows, at even distances.
        y: Values of the line.
        deviation: Half the height of each bar.
        labels: Labels of the horizontal and the vertical axis.
        levels: Values of the horizontal levels, by name.
    """
    low = min([*(a - b for a, b in zip(y, deviation, strict=True)), *levels.values()])
    high = max([*(a + b for a, b in zip(y, deviation, strict=True)), *levels.values()])
    pad = 0.08 * (high - low or 1)
    low, high = low - pad, high + pad

    box = _ONE

    def down(value: float) -> float:
        return box.down(value, low, high)

    def across(number: int) -> float:
        return box.left + (number + 0.5) / len(x) * (box.width - box.left - box.right)

    parts = [*_paper(box.width, box.height), *_frame(title, labels, box, low, high, down)]
    for name, value in levels.items():
        parts.append(
            f'<line x1="{box.left}" x2="{box.width - box.right}" y1="{down(value):.1f}" y2="{down(value):.1f}" '
            'stroke="#d9730d" stroke-dasharray="5 4"/>'
            f'<text x="{box.width - box.right}" y="{down(value) - 5:.1f}" text-anchor="end" fill="#d9730d">'
            f"{html.escape(name)} {value:.1f}</text>"
        )
    points = " ".join(f"{across(number):.1f},{down(value):.1f}" for number, value in enumerate(y))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#2563a8" stroke-width="2"/>')
    for number, (label, value, half) in enumerate(zip(x, y, deviation, strict=True)):
        at = across(number)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{down(value - half):.1f}" y2="{down(value + half):.1f}" '
            'stroke="#2563a8"/>'
            f'<circle cx="{at:.1f}" cy="{down(value):.1f}" r="3.5" fill="#2563a8"/>'
            f'<text x="{at:.1f}" y="{box.height - box.bottom + 20}" text-anchor="middle">{label:g}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def line_plots(plots: Sequence[tuple[str, Lines]], labels: tuple[str, str]) -> str:
    """Plots of several lines, one plot below the other.

    Args:
        plots: A title and the points of each line, by its name.
        labels: Labels of the horizontal and the vertical axis.
    """
    parts = _paper(_MANY.width, _MANY.height * len(plots))
    for number, (title, lines) in enumerate(plots):
        parts += [f'<g transform="translate(0 {number * _MANY.height})">', *_of_lines(title, lines, labels), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _of_lines(title: str, lines: Lines, labels: tuple[str, str]) -> list[str]:
    box = _MANY
    points = [point for line in lines.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    pad = 0.08 * (high - low or 1)
    low, high = low - pad, high + pad

    def across(value: float) -> float:
        return box.left + (value - left) / (right - left or 1) * (box.width - box.left - box.right)

    def down(value: float) -> float:
        return box.down(value, low, high)

    parts = _frame(title, labels, box, low, high, down)
    for value in ticks(left, right, 7):
        parts.append(
            f'<text x="{across(value):.1f}" y="{box.height - box.bottom + 18}" text-anchor="middle">{value:g}</text>'
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        if line:
            path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at, beside = box.top + 16 * number, box.width - box.right
        parts.append(
            f'<line x1="{beside + 12}" x2="{beside + 32}" y1="{at}" y2="{at}" stroke="{colour}" '
            f'stroke-width="2"/><text x="{beside + 38}" y="{at + 4}">{html.escape(name)}</text>'
        )
    return parts


def _paper(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12" fill="#1c2430">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]


def _frame(
    title: str, labels: tuple[str, str], box: _Box, low: float, high: float, down: Callable[[float], float]
) -> list[str]:
    """Title, labels of the axes, and the horizontal lines with their values."""
    parts = [
        f'<text x="{box.left}" y="22" font-size="14" font-weight="600">{html.escape(title)}</text>',
        f'<text x="14" y="{box.height / 2}" transform="rotate(-90 14 {box.height / 2})" text-anchor="middle">'
        f"{html.escape(labels[1])}</text>",
        f'<text x="{(box.left + box.width - box.right) / 2}" y="{box.height - 8}" text-anchor="middle">'
        f"{html.escape(labels[0])}</text>",
    ]
    for value in ticks(low, high, 6):
        parts.append(
            f'<line x1="{box.left}" x2="{box.width - box.right}" y1="{down(value):.1f}" y2="{down(value):.1f}" '
            'stroke="#dfe3e8"/>'
            f'<text x="{box.left - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    return parts
