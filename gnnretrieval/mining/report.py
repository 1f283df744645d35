"""Report of a mining run: what came in, what was kept, what was dropped and why, and examples to look at."""

from __future__ import annotations

import textwrap
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.mining.judge import JudgeSettings

_BINS, _SHOWN = 10, 3
_BAR = 40  # characters of the longest bar
_EXCERPT = 160  # characters shown of a passage
_QUANTILES = {"least": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "most": 1.0}


class Tally:
    """Counts of a mining run.

    Args:
        kind: ``negatives``, ``denoise`` or ``pseudo-label``.
        queries: Number of queries that come in.
        judge: Thresholds, if a cross-encoder judges.

    Attributes:
        candidates: Number of candidates that came in.
        left_out: Number of queries without an example, by reason.
        dropped: Number of candidates that are neither positive nor negative, by reason.
        noted: Other counts, by what they count.
    """

    def __init__(
        self, kind: Literal["negatives", "denoise", "pseudo-label"], queries: int, judge: JudgeSettings | None = None
    ) -> None:
        self.kind, self.queries, self.judge = kind, queries, judge
        self.candidates = 0
        self.left_out: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self._kept = self._negatives = 0
        self._positives: Counter[str] = Counter()
        self._scores = array("f")
        self._judged, self._labels = array("d"), array("d")
        self._found: list[tuple[str, Candidate]] = []  # each query's most probable new positive
        self._hard: list[tuple[str, Candidate]] = []  # each query's best-ranked negative

    def judged(self, probability: float, label: bool = False) -> None:
        """Record the probability of a candidate, or of a label."""
        (self._labels if label else self._judged).append(probability)

    def keep(self, example: Example) -> None:
        """Record an example that is written."""
        self._kept += 1
        self._negatives += len(example.negatives)
        self._positives.update(candidate.source for candidate in example.positives)
        self._scores.extend(candidate.score for candidate in example.negatives if candidate.score is not None)
        found = [candidate for candidate in example.positives if candidate.source == "cross-encoder"]
        if found:
            self._found.append((example.query, max(found, key=lambda candidate: candidate.probability or 0.0)))
        if example.negatives:
            self._hard.append((example.query, example.negatives[0]))

    def notes(self) -> list[str]:
        """The other counts as lines for the user."""
        return [f"{count:,} {what}" for what, count in self.noted.items() if count]

    def as_json(self, texts: TextStore) -> dict[str, Any]:
        """The report as JSON values; ``texts`` has the texts of the examples it shows."""
        scores = np.frombuffer(self._scores, dtype=np.float32)
        return {
            "kind": self.kind,
            "queries": {"in": self.queries, "kept": self._kept, "left_out": _counted(self.left_out)},
            "candidates": {
                "in": self.candidates,
                "positives": _counted(self._positives),
                "negatives": self._negatives,
                "dropped": _counted(self.dropped),
            },
            "noted": _counted(self.noted),
            "scores": {name: float(np.quantile(scores, share)) for name, share in _QUANTILES.items()}
            if len(scores)
            else None,
            "probabilities": self._distribution(self._judged),
            "labels": self._distribution(self._labels),
            "shown": {
                "positives": [_shown(texts, *one) for one in _spread(self._found)],
                "negatives": [_shown(texts, *one) for one in _spread(self._hard)],
            },
        }

    def _distribution(self, probabilities: Sequence[float]) -> dict[str, Any] | None:
        """Histogram over ten equal bins, and the shares on either side of the thresholds."""
        if self.judge is None or not len(probabilities):
            return None
        values = np.array(probabilities)
        bins = np.minimum((values * _BINS).astype(np.int64), _BINS - 1)
        return {
            "count": len(values),
            "histogram": np.bincount(bins, minlength=_BINS).tolist(),
            "above": {
                "threshold": self.judge.positive_threshold,
                "share": float((values > self.judge.positive_threshold).mean()),
            },
            "below": {
                "threshold": self.judge.negative_threshold,
                "share": float((values < self.judge.negative_threshold).mean()),
            },
        }


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if count}


def _spread(items: Sequence[tuple[str, Candidate]]) -> list[tuple[str, Candidate]]:
    """A few items, evenly spaced from the first to the last."""
    places = np.unique(np.linspace(0, len(items) - 1, min(_SHOWN, len(items))).astype(np.int64))
    return [items[place] for place in places.tolist()]


def _shown(texts: TextStore, query: str, candidate: Candidate) -> dict[str, Any]:
    passage = texts.passage_by_id(candidate.passage)
    known = {"rank": candidate.rank, "score": candidate.score, "probability": candidate.probability}
    return {
        "query": query,
        "text": texts.query_by_id(query).text,
        "passage": candidate.passage,
        "excerpt": textwrap.shorten(passage.full_text, _EXCERPT, placeholder=" …"),
        **{name: value for name, value in known.items() if value is not None},
    }


def report_text(report: Mapping[str, Any]) -> str:
    """A report as text for a terminal."""
    queries, candidates = report["queries"], report["candidates"]
    lines = [f"queries: {queries['in']:,}, of which {queries['kept']:,} are kept"]
    lines += _listed("left out", queries["left_out"])
    positives = ", ".join(f"{count:,} by {source}" for source, count in candidates["positives"].items())
    lines += [
        f"candidates: {candidates['in']:,}, of which {candidates['negatives']:,} are negatives",
        *_listed("dropped", candidates["dropped"]),
        f"positives: {positives or 'none'}",
    ]
    lines += _listed("note", report["noted"])
    if report["scores"] is not None:
        quantiles = ", ".join(f"{name} {value:.3g}" for name, value in report["scores"].items())
        lines.append(f"the retriever's scores of the negatives: {quantiles}")
    for name, title in (("probabilities", "candidates"), ("labels", "labelled positives")):
        if report[name] is not None:
            lines += _drawn(title, report[name])
    for name, title in (("positives", "new positives, for example"), ("negatives", "negatives, for example")):
        if report["shown"][name]:
            lines += [title, *(line for one in report["shown"][name] for line in _told(one))]
    return "\n".join(lines)


def _listed(title: str, counts: Mapping[str, int]) -> list[str]:
    return [f"  {title}: {count:,} {what}" for what, count in counts.items()]


def _drawn(title: str, found: Mapping[str, Any]) -> list[str]:
    """A distribution as a bar chart."""
    above, below, most = found["above"], found["below"], max(found["histogram"])
    lines = [
        f"probabilities of {found['count']:,} {title}: {above['share']:.1%} above {above['threshold']:g}, "
        f"{below['share']:.1%} below {below['threshold']:g}"
    ]
    for place, count in enumerate(found["histogram"]):
        bar = "#" * -(-_BAR * count // most)
        lines.append(f"  {place / _BINS:.1f}-{(place + 1) / _BINS:.1f} {bar} {count:,}")
    return lines


def _told(one: Mapping[str, Any]) -> list[str]:
    known = [f"rank {one['rank']}"] if "rank" in one else []
    known += [f"probability {one['probability']:.3f}"] if "probability" in one else []
    return [f"  {one['text']}", f"    {one['passage']} ({', '.join(known)}): {one['excerpt']}"]
