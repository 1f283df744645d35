"""Result files hold figures, ids and provenance, never the texts of a dataset's passages and questions."""

from __future__ import annotations

from typing import Any

TEXTS = frozenset({"text", "excerpt"})


def without_texts(found: Any) -> Any:
    """The same figures without the texts of examples, at any depth."""
    if isinstance(found, dict):
        return {key: without_texts(value) for key, value in found.items() if key not in TEXTS}
    return [without_texts(value) for value in found] if isinstance(found, list | tuple) else found
