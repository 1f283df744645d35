"""The report of ``index inspect``."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from gnnretrieval.errors import ArtifactError, counted
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.pages.reports import Figures, Report


class MeasuredSearch(Figures):
    """Recall and times of the index on a sample of queries, from its ``meta.json``."""

    # Unknown keys are kept: a newer gnnretrieval may have written more.
    model_config = ConfigDict(extra="allow")

    target_recall: float | None = None
    """Recall that the search setting was chosen for; None without such a choice."""
    recall_at_10: float = Field(alias="recall@10")
    """Share of the exact search's first 10 that the index retrieves; ``recall@10`` in JSON."""
    recall_at_100: float = Field(alias="recall@100")
    """``recall@100`` in JSON."""
    milliseconds: float
    """Median time of a single question."""
    queries_per_second: float
    """Of one large batch."""
    sample: str
    """The sample of queries, in words."""
    threads: int
    updates_since: int = 0
    """Updates of the index after it was measured."""


class IndexReport(Report):
    """What an index is, and what was measured."""

    path: str = Field(exclude=True)
    """The index's directory; not in the JSON."""
    passages: int
    removed: int
    """Passages that were removed since."""
    sentences: int | None
    """None if the vectors are those of passages; the JSON then lacks it."""
    vectors: int | None
    """Vectors of passages that have several; None if each has one; the JSON then lacks it."""
    dimension: int
    bytes: int
    factory: str
    """FAISS's name for its kind."""
    exact: bool
    """Whether a question is compared with every vector, without compression."""
    similarity: Literal["cosine", "dot"]
    search: str
    """FAISS's search setting; empty without one."""
    shards: int
    measured: MeasuredSearch | None
    """None without queries to measure by; ``{}`` in JSON."""

    @classmethod
    def of(cls, index: Index) -> Self:
        """The report of ``index``.

        Raises:
            ArtifactError: its ``meta.json`` has a wrong figure.
        """
        meta = index.meta
        figures = {
            "path": str(index.path),
            "passages": meta["num_passages"],
            "removed": len(index.removed),
            "sentences": meta.get("num_sentences"),
            "vectors": meta.get("num_vectors"),
            "dimension": meta["dimension"],
            "bytes": meta["bytes"],
            "factory": index.config["factory"],
            "exact": index.is_exact,
            "similarity": "cosine" if index.similarity.normalize else "dot",
            "search": meta.get("search", ""),
            "shards": meta.get("shards", 1),
            "measured": meta.get("measured") or None,
        }
        try:
            return cls.model_validate(figures)
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors()[0]["loc"]))
            raise ArtifactError(
                f"{index.path / 'meta.json'}: {wrong} is missing or wrong. Build this index again."
            ) from None

    @model_serializer(mode="wrap")
    def _as_printed(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = {name for name in ("sentences", "vectors") if getattr(self, name) is None}
        measured = {} if self.measured is None else self.measured.model_dump(by_alias=True, exclude_unset=True)
        return {name: value for name, value in dump(self).items() if name not in absent} | {"measured": measured}

    def to_text(self) -> str:
        """What the index is and what was measured, in words."""
        unit = "" if self.sentences is None else f" by {self.sentences:,} sentences"
        unit += "" if self.vectors is None else f", {counted(self.vectors, 'vector')}"
        shards = f", {self.shards} parts" if self.shards > 1 else ""
        kind = f"{'exact search' if self.exact else self.factory}{shards}"
        setting = f" searched with {self.search}" if self.search else ""
        size = f"{counted(self.passages, 'passage')}{unit}, {self.bytes / 2**20:.1f} MiB"
        lines = [f"{self.path}: {size}, {kind}{setting}"]
        if measured := self.measured:
            of_vectors = "" if self.vectors is None else " of vectors"
            lines.append(
                f"  recall{of_vectors} against exact search: @10 {100 * measured.recall_at_10:.1f} %, "
                f"@100 {100 * measured.recall_at_100:.1f} %; {measured.milliseconds:.2f} ms for a question alone, "
                f"{measured.queries_per_second:,.0f} questions a second together ({measured.sample}, "
                f"{counted(measured.threads, 'core')})"
            )
            if since := measured.updates_since:
                lines.append(f"  measured before the last {f'{since} updates' if since > 1 else 'update'}")
        return "\n".join(lines)
