"""A report: figures as a mapping, as text and as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any


class Report(Mapping[str, Any]):
    """Figures by name, as a frozen mapping; a terminal and a notebook show them as text.

    Args:
        figures: JSON values by name.
        text: The figures as text.
        page: A function that gives the figures as an HTML page that opens offline.
    """

    def __init__(self, figures: Mapping[str, Any], text: str, page: Callable[[], str]) -> None:
        self._figures, self._text, self._page = dict(figures), text, page

    def __getitem__(self, name: str) -> Any:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"

    def to_text(self) -> str:
        """The figures as text."""
        return self._text

    def to_html(self) -> str:
        """The figures as an HTML page with tables and plots, to write to a file."""
        return self._page()
