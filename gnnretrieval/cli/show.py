"""How hits and explanations are printed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnretrieval.index.explain import Explanation
    from gnnretrieval.index.search import Hit

WIDTH = 100


def short(text: str, width: int = WIDTH) -> str:
    """One line of at most ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def hit_lines(hit: Hit) -> list[str]:
    """A hit: rank, score, id and title, then the beginning of its text."""
    name = hit.id if hit.title in ("", hit.id) else f"{hit.id}  {hit.title}"
    return [
        f"{hit.rank:>3}. {hit.score:.4f}  {name}",
        *textwrap.wrap(short(hit.text, 2 * WIDTH), WIDTH, initial_indent="     ", subsequent_indent="     "),
    ]


def explanation_lines(explanation: Explanation, rank_before: int, rank_after: int) -> list[str]:
    """Why a passage is where it is."""
    lines = [
        f"     dual-encoder rank {rank_before} → {rank_after}; mean gate {explanation.mean_gate:.3f}, context scale "
        f"{explanation.context_scale:g}, own attention {explanation.own_attention:.2f}"
    ]
    if not explanation.neighbors:
        lines.append("     no training question found it: only its self-loop")
    for neighbor in explanation.neighbors:
        mark = "*" if neighbor.labelled else " "
        lines.append(f"     {mark} attention {neighbor.attention:.3f}  {short(neighbor.text, WIDTH - 24)}")
    return lines


def explanation_json(explanation: Explanation, rank_before: int) -> dict[str, Any]:
    """The same as JSON values."""
    values = explanation._asdict()
    values["neighbors"] = [neighbor._asdict() for neighbor in explanation.neighbors]
    return {"dual_encoder_rank": rank_before, **values}
