"""Prompts that a checkpoint puts before texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gnnretrieval.errors import GnnRetrievalError

Side = Literal["query", "passage"]


def own_prompt(prompts: Mapping[str, Any] | None, side: Side) -> str:
    """The prompt for one side among a sentence-transformers checkpoint's ``prompts``; empty if there is none.

    Raises:
        GnnRetrievalError: The prompt is not a string.
    """
    names = ("query",) if side == "query" else ("passage", "document", "corpus")
    prompt = next((prompt for name in names if (prompt := (prompts or {}).get(name))), "")
    if not isinstance(prompt, str):
        raise GnnRetrievalError(f"this checkpoint's prompt for a {side} is {prompt!r}: it must be a text.")
    return prompt
