"""The records of a dataset, which readers yield and all stages use."""

from __future__ import annotations

from typing import NamedTuple


class Passage(NamedTuple):
    """A text to retrieve."""

    id: str
    title: str
    text: str

    @property
    def full_text(self) -> str:
        """The input of encoders and BM25: ``title. text``, or the text alone where there is no title."""
        return f"{self.title}. {self.text}" if self.title else self.text


class Query(NamedTuple):
    """A question."""

    id: str
    text: str


class Qrel(NamedTuple):
    """A relevance judgement; ``relevance`` above 0 is relevant."""

    query_id: str
    passage_id: str
    relevance: int


class ScoredPassage(NamedTuple):
    """A passage of a ranking, with its score."""

    passage_id: str
    score: float
