"""What a checkpoint puts before texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Side = Literal["query", "passage"]


def own_prompt(prompts: Mapping[str, str | None] | None, side: Side) -> str:
    """What a sentence-transformers checkpoint with these prompts puts before texts of one side by itself."""
    names = ("query",) if side == "query" else ("passage", "document", "corpus")
    return next((prompt for name in names if (prompt := (prompts or {}).get(name))), "")
