"""Report of a mining run: what was kept, what was dropped and why, and examples to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from gnnretrieval.errors import counted
from gnnretrieval.pages.reports import Figures, Report

BINS = 10  # of the histograms of probabilities
_BAR = 40  # characters of the longest bar

Kind = Literal["negatives", "denoise", "pseudo-label", "feedback"]


class _Part(Figures):
    # Unknown keys are no error: a newer gnnretrieval may have written more.
    model_config = ConfigDict(extra="ignore")


class QueryCounts(_Part):
    """Queries of a mining run."""

    came_in: int = Field(alias="in")
    """``in`` in JSON."""
    kept: int
    left_out: dict[str, int]
    """Queries without an example, by reason."""


class CandidateCounts(_Part):
    """Candidates of a mining run."""

    came_in: int = Field(alias="in")
    """``in`` in JSON."""
    positives: dict[str, int]
    """Positives by source."""
    negatives: int
    dropped: dict[str, int]
    """Candidates that are neither positive nor negative, by reason."""


class BeyondThreshold(_Part):
    """Probabilities on one side of a threshold."""

    threshold: float
    share: float


class Probabilities(_Part):
    """Probabilities by the cross-encoder."""

    count: int
    histogram: list[int]
    """Counts in ten equal bins from 0 to 1."""
    above: BeyondThreshold
    """Above the threshold of positives."""
    below: BeyondThreshold
    """Below the threshold of negatives."""


class ShownExample(_Part):
    """A passage of a query, as an example."""

    query: str
    text: str
    """The query's text."""
    passage: str
    excerpt: str
    """The beginning of the passage's text."""
    rank: int | None = None
    """Rank by the retriever, from 1."""
    score: float | None = None
    """Score by the retriever."""
    probability: float | None = None
    """Probability by the cross-encoder."""

    @model_serializer(mode="wrap")
    def _without_what_is_not_known(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class ShownOfEach(_Part):
    """Examples of each kind."""

    positives: list[ShownExample]
    """New positives."""
    negatives: list[ShownExample]


class MiningReport(Report, _Part):
    """The report of mined examples; it is their ``report.json``."""

    kind: Kind
    queries: QueryCounts
    candidates: CandidateCounts
    noted: dict[str, int]
    """Other counts, each with its description."""
    scores: dict[str, float] | None
    """Quantiles of the retriever's scores of the negatives; None without scores."""
    probabilities: Probabilities | None
    """Of the candidates; None where no cross-encoder judged."""
    labels: Probabilities | None
    """Of the labelled positives."""
    shown: ShownOfEach

    def to_text(self) -> str:
        """The report as text for a terminal."""
        queries, candidates = self.queries, self.candidates
        lines = [f"queries: {queries.came_in:,}, of which {queries.kept:,} are kept"]
        lines += _listed("left out", queries.left_out)
        positives = ", ".join(f"{count:,} by {source}" for source, count in candidates.positives.items())
        lines += [
            f"candidates: {candidates.came_in:,}, of which {candidates.negatives:,} are negatives",
            *_listed("dropped", candidates.dropped),
            f"positives: {positives or 'none'}",
        ]
        lines += _listed("note", self.noted)
        if self.scores is not None:
            quantiles = ", ".join(f"{name} {value:.3g}" for name, value in self.scores.items())
            lines.append(f"the retriever's scores of the negatives: {quantiles}")
        for title, probabilities in (("candidates", self.probabilities), ("labelled positives", self.labels)):
            if probabilities is not None:
                lines += _drawn(title, probabilities)
        for title, shown in (("new positives", self.shown.positives), ("negatives", self.shown.negatives)):
            if shown:
                lines += [f"{title}, for example", *(line for example in shown for line in _told(example))]
        return "\n".join(lines)


def _listed(title: str, counts: Mapping[str, int]) -> list[str]:
    return [f"  {title}: {counted(count, what.replace('queries', 'query', 1), what)}" for what, count in counts.items()]


def _drawn(title: str, probabilities: Probabilities) -> list[str]:
    """A distribution as a bar chart."""
    above, below, most = probabilities.above, probabilities.below, max(probabilities.histogram)
    lines = [
        f"probabilities of {probabilities.count:,} {title}: {above.share:.1%} above {above.threshold:g}, "
        f"{below.share:.1%} below {below.threshold:g}"
    ]
    for place, count in enumerate(probabilities.histogram):
        bar = "#" * -(-_BAR * count // most)
        lines.append(f"  {place / BINS:.1f}-{(place + 1) / BINS:.1f} {bar} {count:,}")
    return lines


def _told(example: ShownExample) -> list[str]:
    known = [f"rank {example.rank}"] if example.rank is not None else []
    known += [f"probability {example.probability:.3f}"] if example.probability is not None else []
    return [f"  {example.text}", f"    {example.passage} ({', '.join(known)}): {example.excerpt}"]
