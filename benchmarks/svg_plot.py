"""A line plot as SVG, small enough to keep beside its table in the repository."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from gnnretrieval.pages.axes import ticks

_WIDTH, _HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 40, 55


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

    def down(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def across(number: int) -> float:
        return _LEFT + (number + 0.5) / len(x) * (_WIDTH - _LEFT - _RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#1c2430">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
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
    for name, value in levels.items():
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(value):.1f}" y2="{down(value):.1f}" '
            'stroke="#d9730d" stroke-dasharray="5 4"/>'
            f'<text x="{_WIDTH - _RIGHT}" y="{down(value) - 5:.1f}" text-anchor="end" fill="#d9730d">'
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
            f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{label:g}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
