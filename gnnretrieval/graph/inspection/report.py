"""The report of ``graph inspect``."""

from __future__ import annotations

from pydantic import Field

from gnnretrieval.graph.inspection.agreement import Agreement
from gnnretrieval.graph.inspection.connectivity import Degrees, MostFound, Scores
from gnnretrieval.graph.inspection.memory_needs import MemoryNeeds
from gnnretrieval.graph.inspection.near_duplicates import NearDuplicates
from gnnretrieval.graph.inspection.overlap import Overlap
from gnnretrieval.pages.reports import Report


class GraphReport(Report):
    """What :meth:`gnnretrieval.graph.store.Graph.inspect` finds."""

    path: str = Field(exclude=True)
    """The graph's directory; not in the JSON."""
    passages: int
    queries: int
    k: int
    """Passages that each query retrieves."""
    edges: int
    dimension: int
    edge_features: list[str]
    encoder: str
    """Checkpoint of the dual-encoder."""
    queries_per_passage: Degrees
    most_found: list[MostFound]
    labelled_queries: int
    labelled_passage_among_neighbours: dict[str, float]
    """Share of these queries by rank; the last is the graph's recall ceiling."""
    scores: Scores
    agreement: Agreement | None
    """None if no passage has two questions."""
    near_duplicates: NearDuplicates
    overlap: Overlap
    bytes_on_disk: int
    files: dict[str, int]
    """Bytes by name, largest first; a directory has a slash."""
    memory: MemoryNeeds
    warnings: list[str]
    """Sentences that say what to change."""

    def to_text(self) -> str:
        """The figures as text."""
        from gnnretrieval.graph.inspection.text import format_graph

        return format_graph(self)

    def to_html(self) -> str:
        """The figures as an HTML page with plots that opens offline, to write to a file."""
        from gnnretrieval.graph.inspection.page import page_of

        return page_of(self)
