"""Reports: typed figures that a program reads, a terminal and a notebook show, and a page plots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any

from pydantic import BaseModel, ConfigDict


class Figures(BaseModel):
    """A frozen record of figures: a report, or a part of one. A share is between 0 and 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON values, as the commands print them."""
        return self.model_dump(mode="json", by_alias=True)


class Report(Figures, ABC):
    """Figures with a text, which a terminal and a notebook show. One with a page has ``to_html()`` too."""

    def __repr__(self) -> str:
        return self.to_text()

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"

    @abstractmethod
    def to_text(self) -> str:
        """The figures as text."""
