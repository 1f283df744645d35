"""Plots of several lines, one below the other, as one SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from gnnretrieval.pages.axes import ticks

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 40, 50
_COLOURS = ("#2563a8", "#6b7280", "#d9730d", "#2f855a", "#9b2c8f")

Lines = Mapping[str, Sequence[tuple[float, float]]]


def line_plots(plots: Sequence[tuple[str, Lines]], labels: tuple[str, str]) -> str:
    """The plots.

    Args:
        plots: A title and the points of each line, by its name.
        labels: Labels of the horizontal and the vertical axis.
    """
    height = _HEIGHT * len(plots)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="12" fill="#1c2430">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (title, lines) in enumerate(plots):
        parts += [f'<g transform="translate(0 {number * _HEIGHT})">', *_plot(title, lines, labels), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _plot(title: str, lines: Lines, labels: tuple[str, str]) -> list[str]:
    points = [point for its in lines.values() for point in its]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    pad = 0.08 * (high - low or 1)
    low, high = low - pad, high + pad

    def across(value: float) -> float:
        return _LEFT + (value - left) / (right - left or 1) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<text x="{_LEFT}" y="22" font-size="14" font-weight="600">{html.escape(title)}</text>',
        f'<text x="14" y="{_HEIGHT / 2}" transform="rotate(-90 14 {_HEIGHT / 2})" text-anchor="middle">'
        f"{html.escape(labels[1])}</text>",
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{html.escape(labels[0])}</text>",
    ]
    for value in ticks(low, high, 6):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(value):.1f}" y2="{down(value):.1f}" '
            'stroke="#dfe3e8"/>'
            f'<text x="{_LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for value in ticks(left, right, 7):
        parts.append(
            f'<text x="{across(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
        )
    for number, (name, its) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        its = sorted(its)
        if its:
            path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in its)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = _TOP + 16 * number
        parts.append(
            f'<line x1="{_WIDTH - _RIGHT + 12}" x2="{_WIDTH - _RIGHT + 32}" y1="{at}" y2="{at}" stroke="{colour}" '
            f'stroke-width="2"/><text x="{_WIDTH - _RIGHT + 38}" y="{at + 4}">{html.escape(name)}</text>'
        )
    return parts
