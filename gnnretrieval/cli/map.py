"""``gnnretrieval map``: passages in two dimensions, before and after the GNN-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnretrieval.cli.options import PATH, beside, named_after, out_beside_option, overwrite_option
from gnnretrieval.cli.output import echo, echo_next, quoted
from gnnretrieval.cli.settings_options import settings_from, settings_options
from gnnretrieval.maps.settings import MapSettings
from gnnretrieval.serve.settings import MOST, MOST_TEXTS

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
    from gnnretrieval.index.retriever import index_in
    from gnnretrieval.maps.building import build_map, embeddings_behind

    embeddings = embeddings_behind(source)
    out = out or beside(index_in(source), "map")  # where serve looks for it
    made = build_map(embeddings, out, MapSettings.parse(settings_from(MapSettings, settings)), overwrite=overwrite)
    echo("\n".join(_lines(made, out)))
    echo_next(f"gnnretrieval map view {quoted(out)}, and then open {out}.html in a browser")


@map_.command()
@click.argument("place", metavar="MAP", type=PATH)
@click.option("--html", type=PATH, help="The page to write; it opens offline (default: MAP.html).")
@click.option("--svg", type=PATH, help="Write a still picture without texts to this file, and no page.")
@click.option(
    "--points",
    type=click.IntRange(1),
    default=MOST,
    show_default=True,
    help="Passages to draw, and questions; drawn at random if there are more.",
)
@click.option(
    "--texts",
    type=click.IntRange(0),
    default=MOST_TEXTS,
    show_default=True,
    help="Passages whose titles and first words the page has: those that moved most. As many questions have theirs.",
)
def view(place: Path, html: Path | None, svg: Path | None, points: int, texts: int) -> None:
    """Write MAP as one page to pan, zoom and search, or as a still picture.

    \b
    Example: gnnretrieval map view work/map
    Example: gnnretrieval map view work/map --points 20000 --texts 20000 --html map.html
    Example: gnnretrieval map view work/map --svg map.svg
    """
    from gnnretrieval.maps.passage_map import open_map
    from gnnretrieval.maps.picture import write_picture
    from gnnretrieval.pages.html import require_page_place
    from gnnretrieval.progress import say
    from gnnretrieval.serve.map_page import write_map_file

    if svg is not None and html is not None:
        raise click.UsageError("--html writes a page and --svg a picture: give one of them.")
    if svg is not None:
        require_page_place(svg)
        write_picture(open_map(place), svg)
        say(f"{svg}: the picture, {svg.stat().st_size / 2**10:.0f} KiB")
        return
    html = html or named_after(place, ".html")
    require_page_place(html)
    write_map_file(open_map(place), html, most=points, most_texts=texts)
    say(f"{html}: the page, {html.stat().st_size / 2**20:.1f} MiB")


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
    if meta["after_head"]:
        lines.append("  all vectors are those after the linear heads; displacements are by messages along the graph")
    return lines
