"""The map as a small picture without script or text: for a report, or as one SVG file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnretrieval.maps.passage_map import PassageMap
from gnnretrieval.maps.points import points_of
from gnnretrieval.maps.projection import Floats
from gnnretrieval.pages.html import Html, escape, write_page

_MOST = 1500  # passages, and as many questions: a reader cannot tell more apart at this size
_WIDTH, _HEIGHT, _EDGE = 440, 330, 8  # in SVG units; the page scales it
_SIZE = f'width="{_WIDTH * 1.4:.0f}" height="{_HEIGHT * 1.4:.0f}"'  # of the file, in pixels
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #8b95a3; --s0: #2563a8; --s1: #c2610a; }
@media (prefers-color-scheme: dark) { :root { --paper: #1a2028; --ink: #6b7686; --s0: #7db3ee; --s1: #f2a65a; } }
.paper { fill: var(--paper); }
.still { stroke: var(--ink); } .tail, .head { stroke: var(--s1); } .asked { stroke: var(--s0); }
"""


def picture_of(shown: PassageMap) -> Html:
    """The map as an SVG element, for a page. The page's stylesheet must have the classes.

    A dot is a passage after the GNN-encoder; its line begins where the passage was before. A grey dot did not move. A
    diamond is a training question. Of more than 1,500 passages, or questions, a random part is drawn.

    Raises:
        ArtifactError: The map is damaged.
    """
    return _drawing(shown, 'class="map"')


def write_picture(shown: PassageMap, path: str | Path) -> None:
    """Write the picture as one SVG file, which follows the reader's light or dark scheme.

    Raises:
        ArtifactError: The map is damaged.
        GnnRetrievalError: The file cannot be written.
    """
    write_page(_drawing(shown, f'xmlns="http://www.w3.org/2000/svg" {_SIZE}', f"<style>{_STYLE}</style>"), path)


def _drawing(shown: PassageMap, attributes: str, before: str = "") -> Html:
    points = points_of(shown, _MOST)
    has_moved = points.displacement > 0
    start, end, questions = _placed(points.before, points.after, points.questions)
    moved = np.flatnonzero(has_moved)
    parts = [  # in the order of drawing: moved passages and questions lie on top
        f'<path class="still" stroke-width="3" stroke-linecap="round" d="{_dots(end[~has_moved])}"/>',
        f'<path class="tail" stroke-width="0.8" opacity="0.45" d="{_lines(start[moved], end[moved])}"/>',
        f'<path class="head" stroke-width="3.6" stroke-linecap="round" d="{_dots(end[moved])}"/>',
        f'<path class="asked" stroke-width="1.2" fill="none" d="{_diamonds(questions)}"/>',
    ]
    label = (
        f"Map of {len(end):,} passages and {len(questions):,} training questions in two dimensions; "
        f"{len(moved):,} of these passages moved."
    )
    head = f'<svg {attributes} viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
    paper = f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>'
    return Html("\n".join([head + before, paper, *parts, "</svg>\n"]))


def _placed(*points: Floats) -> list[Floats]:
    """The points ``(p, 2)`` in SVG units, all on one scale, so that all fit."""
    every = np.concatenate(points)
    low, high = every.min(0), every.max(0)
    room = np.array([_WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE])
    scale = (room / np.maximum(high - low, 1e-9)).min()
    middle, centre = (low + high) / 2, np.array([_WIDTH, _HEIGHT]) / 2
    placed: list[Floats] = [((part - middle) * (scale, -scale) + centre).astype(np.float32) for part in points]
    return placed


def _dots(points: Floats) -> str:
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points.tolist())


def _lines(start: Floats, end: Floats) -> str:
    return "".join(
        f"M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" for (x, y), (u, v) in zip(start.tolist(), end.tolist(), strict=True)
    )


def _diamonds(points: Floats) -> str:
    return "".join(f"M{x:.1f} {y - 2.5:.1f}l2.5 2.5l-2.5 2.5l-2.5-2.5z" for x, y in points.tolist())
