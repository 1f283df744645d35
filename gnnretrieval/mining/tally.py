"""Counts of a mining run while it runs."""

from __future__ import annotations

import textwrap
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import counted
from gnnretrieval.mining.examples import REPORT, Candidate, Example
from gnnretrieval.mining.judge import JudgeSettings
from gnnretrieval.mining.report import (
    BINS,
    BeyondThreshold,
    CandidateCounts,
    Kind,
    MiningReport,
    Probabilities,
    QueryCounts,
    ShownExample,
    ShownOfEach,
)
from gnnretrieval.progress import say
from gnnretrieval.storage.provenance import write_json

_SHOWN = 3  # examples of each kind
_EXCERPT = 160  # characters shown of a passage
_QUANTILES = {"least": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "most": 1.0}


class Tally:
    """Counts of a mining run.

    Args:
        kind: ``negatives``, ``denoise``, ``pseudo-label`` or ``feedback``.
        queries: Number of queries at the start.
        judge: Thresholds, if a cross-encoder judges.

    Attributes:
        candidates: Number of candidates before any choice.
        left_out: Number of queries without an example, by reason.
        dropped: Number of candidates that are neither positive nor negative, by reason.
        noted: Other counts, each with its description.
    """

    def __init__(self, kind: Kind, queries: int, judge: JudgeSettings | None = None) -> None:
        self.kind, self.queries, self.judge = kind, queries, judge
        self.candidates = 0
        self.left_out: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self._kept = self._negatives = 0
        self._positives: Counter[str] = Counter()
        self._scores = array("f")
        self._judged, self._labels = array("d"), array("d")
        self._new_positives: list[tuple[str, Candidate]] = []  # each query's most probable one
        self._first_negatives: list[tuple[str, Candidate]] = []  # each query's best-ranked one

    def judged(self, probability: float, label: bool = False) -> None:
        """Record the probability of a candidate, or of a label."""
        (self._labels if label else self._judged).append(probability)

    def keep(self, example: Example) -> None:
        """Record an example that is written."""
        self._kept += 1
        self._negatives += len(example.negatives)
        self._positives.update(candidate.source for candidate in example.positives)
        self._scores.extend(candidate.score for candidate in example.negatives if candidate.score is not None)
        new = [candidate for candidate in example.positives if candidate.source == "cross-encoder"]
        if new:
            self._new_positives.append((example.query, max(new, key=lambda candidate: candidate.probability or 0.0)))
        if example.negatives:
            self._first_negatives.append((example.query, example.negatives[0]))

    def write_report(self, directory: Path, texts: TextStore) -> dict[str, Any]:
        """Write the report into ``directory`` and print :attr:`noted`; returns the counts of candidates."""
        report = self.report(texts)
        write_json(directory / REPORT, report.as_json())
        for what, count in self.noted.items():
            if count:
                say(counted(count, what.replace("queries", "query", 1), what))
        return report.candidates.as_json()

    def report(self, texts: TextStore) -> MiningReport:
        """The report; ``texts`` has the texts of the examples it shows."""
        scores = np.frombuffer(self._scores, dtype=np.float32)
        return MiningReport(
            kind=self.kind,
            queries=QueryCounts(came_in=self.queries, kept=self._kept, left_out=_counted(self.left_out)),
            candidates=CandidateCounts(
                came_in=self.candidates,
                positives=_counted(self._positives),
                negatives=self._negatives,
                dropped=_counted(self.dropped),
            ),
            noted=_counted(self.noted),
            scores={name: float(np.quantile(scores, share)) for name, share in _QUANTILES.items()}
            if len(scores)
            else None,
            probabilities=self._distribution(self._judged),
            labels=self._distribution(self._labels),
            shown=ShownOfEach(
                positives=[_shown(texts, *pair) for pair in _spread(self._new_positives)],
                negatives=[_shown(texts, *pair) for pair in _spread(self._first_negatives)],
            ),
        )

    def _distribution(self, probabilities: Sequence[float]) -> Probabilities | None:
        if self.judge is None or not len(probabilities):
            return None
        values = np.array(probabilities)
        bins = np.minimum((values * BINS).astype(np.int64), BINS - 1)
        high, low = self.judge.positive_threshold, self.judge.negative_threshold
        return Probabilities(
            count=len(values),
            histogram=np.bincount(bins, minlength=BINS).tolist(),
            above=BeyondThreshold(threshold=high, share=float((values > high).mean())),
            below=BeyondThreshold(threshold=low, share=float((values < low).mean())),
        )


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if count}


def _spread(items: Sequence[tuple[str, Candidate]]) -> list[tuple[str, Candidate]]:
    """A few items, evenly spaced from the first to the last."""
    places = np.unique(np.linspace(0, len(items) - 1, min(_SHOWN, len(items))).astype(np.int64))
    return [items[place] for place in places.tolist()]


def _shown(texts: TextStore, query: str, candidate: Candidate) -> ShownExample:
    passage = texts.passage_by_id(candidate.passage)
    return ShownExample(
        query=query,
        text=texts.query_by_id(query).text,
        passage=candidate.passage,
        excerpt=textwrap.shorten(passage.full_text, _EXCERPT, placeholder=" …"),
        rank=candidate.rank,
        score=candidate.score,
        probability=candidate.probability,
    )
