"""``gnnretrieval map``: passages in two dimensions, before and after the GNN-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import PATH, beside, out_beside_option, overwrite_option
from gnnretrieval.cli.output import echo
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.maps.settings import MapSettings

if TYPE_CHECKING:
    from gnnretrieval.maps.passage_map import PassageMap


@click.group("map")
def map_() -> None:
    """The map: passages in two dimensions, before and after the GNN-encoder."""


@map_.command()
@click.argument("source", metavar="INDEX_OR_EMBEDDINGS", type=PATH)
@out_beside_option
@settings_options(MapSettings)
@overwrite_option
def build(source: Path, out: Path | None, overwrite: bool, **settings: Any) -> None:
    """Project the passages of a GNN-encoder's index or embeddings to two dimensions, before and after.

    One projection is fit on both, so an arrow from a passage's point before to its point after is its displacement.
    `serve` shows the map beside its index at /map.

    \b
    Example: gnnretrieval map build work/embeddings
    Example: gnnretrieval map build work/index --method umap --out work/map-umap
    """
    from gnnretrieval.maps.building import build_map, embeddings_behind

    embeddings = embeddings_behind(source)
    out = out or beside(embeddings.path, "map")
    made = build_map(embeddings, out, MapSettings.parse(settings_from(MapSettings, settings)), overwrite=overwrite)
    echo("\n".join(_lines(made, out)))


def _lines(made: PassageMap, place: Path) -> list[str]:
    """What a map is, in words."""
    meta = made.meta
    lines = [
        f"{place}: {made.num_passages:,} passages, {100 * meta['share_moved']:.1f} % of them moved, and "
        f"{made.num_questions:,} training questions"
    ]
    if meta["variance_kept"] is not None:
        lines.append(f"  the two axes keep {100 * meta['variance_kept']:.1f} % of the variance")
    if meta["displacement_kept"] is not None:
        lines.append(f"  and {100 * meta['displacement_kept']:.1f} % of the squared length of the displacements")
    return lines
