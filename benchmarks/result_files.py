"""Result files hold figures, ids and provenance, never the texts of a dataset's passages and questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

TEXTS = frozenset({"text", "excerpt"})


def without_texts(figures: Any) -> Any:
    """The same figures without the texts of examples, at any depth."""
    if isinstance(figures, dict):
        return {key: without_texts(value) for key, value in figures.items() if key not in TEXTS}
    return [without_texts(value) for value in figures] if isinstance(figures, list | tuple) else figures


def revisions_in_words(revisions: Iterable[str]) -> str:
    """The revisions of the package that some results were measured at, shortened, each once."""
    return ", ".join(dict.fromkeys(revision[:7] for revision in revisions))
