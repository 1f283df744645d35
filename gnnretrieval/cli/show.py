"""Text of hits, explanations and neighbourhoods for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnretrieval.index.retriever import Why
    from gnnretrieval.index.search import Hit

WIDTH = 100


def short(text: str, width: int = WIDTH) -> str:
    """The text as one line of at most ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def hit_lines(hit: Hit) -> list[str]:
    """A hit: rank, score, id and title, the sentence that matched, if any, and the beginning of its text."""
    name = hit.id if hit.title in ("", hit.id) else f"{hit.id}  {hit.title}"
    matched = [] if hit.sentence is None else [f"     matched: {short(hit.sentence, WIDTH - 14)}"]
    return [
        f"{hit.rank:>3}. {hit.score:.4f}  {name}",
        *matched,
        *textwrap.wrap(short(hit.text, 2 * WIDTH), WIDTH, initial_indent="     ", subsequent_indent="     "),
    ]


def explanation_lines(why: Why, rank: int) -> list[str]:
    """The rank of a passage before and now, its attention to itself, and the training questions that moved it."""
    explanation, lines = why.explanation, []
    if why.matched is not None:
        lines.append(f"     matched its training question: {short(why.matched.text, WIDTH - 36)}")
    lines.append(
        f"     dual-encoder rank {why.rank_before} → {rank}; {explanation.gate}attention to itself "
        f"{explanation.own_attention:z.2f}"
    )
    if not explanation.neighbors:
        lines.append(f"     {explanation.without_neighbors}")
    for neighbor in explanation.neighbors:
        mark = "*" if neighbor.labelled else " "
        lines.append(f"     {mark} attention {neighbor.attention:z.3f}  {short(neighbor.text, WIDTH - 24)}")
    return lines


def explanation_json(why: Why) -> dict[str, Any]:
    """The explanation as JSON values."""
    values = why.explanation._asdict()
    values["neighbors"] = [neighbor._asdict() for neighbor in why.explanation.neighbors]
    matched = {} if why.matched is None else {"matched": {"id": why.matched.id, "text": why.matched.text}}
    return {"dual_encoder_rank": why.rank_before, **matched, **values}


def neighborhood_lines(described: dict[str, Any]) -> list[str]:
    """A node and its neighbours (:func:`gnnretrieval.index.neighborhood.describe`); second neighbours are indented."""
    node, neighbors = described["node"], described["neighbors"]
    others = "queries" if node["kind"] == "passage" else "passages"
    shown = len(neighbors)
    count = f"{node['edges']:,} {others}" + (f", {shown:,} shown" if shown < node["edges"] else "")
    text = f"{node['title']}. {node['text']}" if node.get("title") else node["text"]
    lines = [f"{node['kind']} {node['id']}: {count}", f"  {short(text)}"]
    if "own_attention" in node:
        gate = f", mean gate {node['mean_gate']:.3f}" if node.get("mean_gate") is not None else ""
        lines.append(f"  attention to itself {node['own_attention']:.3f}{gate}")
    for neighbor in neighbors:
        lines.append(_edge_line(neighbor, 0))
        inner = neighbor.get("neighbors", [])
        lines += [_edge_line(other, 4) for other in inner]
        if inner and len(inner) < neighbor["edges"]:
            lines.append(f"      {neighbor['edges'] - len(inner):,} more")
    return lines


def _edge_line(edge: dict[str, Any], indent: int) -> str:
    mark = "*" if edge["labelled"] else " "
    attention = f"  attention {edge['attention']:z.3f}" if "attention" in edge else ""
    rank = f"rank {edge['rank']:>2}" if edge["retrieved"] else f"label only, {_rank_behind(edge)}"
    title = f"{' ' * indent}{mark} {edge['score']:.3f}{attention}  {rank}  {edge['id']}"
    return f"{title}  {short(edge['text'], 90 - indent)}"


def _rank_behind(edge: dict[str, Any]) -> str:
    """Rank of a passage that was not retrieved."""
    return "not retrieved" if edge["rank"] is None else f"rank {edge['rank']:,}"
