"""Figures of each split's judgements, and leakage between splits: shared questions, near-duplicates and passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.quantiles import Bin, Distribution, Spread, in_doubling_bins, spread
from gnnretrieval.data.inspection.text_figures import NamedText, NearTextPair, TextPass
from gnnretrieval.pages.reports import Figures

Judged = Mapping[str, Mapping[str, Mapping[str, int]]]  # relevance by passage by query by split


class SplitFigures(Figures):
    """Judgements of a split; relevant means a relevance above 0."""

    queries: int
    judgements: int
    judgements_per_query: float
    """Their mean."""
    judgements_a_query: Distribution
    grades: dict[str, int]
    """Judgements by relevance, as text."""
    negative_grades: int
    """Judgements below 0."""
    queries_without_relevant: int
    """Queries with no judgement above 0."""
    relevant_passages: int
    queries_a_relevant_passage: Spread | None
    """None without relevant passages."""


class MostAsked(Figures):
    """A passage with many queries."""

    id: str
    queries: int


class QueriesOfPassages(Spread):
    """Number of queries of all splits that a passage is relevant to, over all passages."""

    mean: float
    share_without: float
    """Share of passages that are relevant to no query."""
    histogram: list[Bin]
    most_asked: list[MostAsked]
    """The passages with the most queries."""


class Leakage(Figures):
    """What a split shares with an earlier one."""

    split: str
    of: str
    """The earlier split."""
    queries: int
    """Queries of ``split``."""
    same_id: int
    """Queries in both."""
    same_text: int
    """Queries with a normalised text that is in ``of``."""
    near: int
    """Other queries with a near-duplicate in ``of``."""
    relevant_passages: int
    """Relevant passages of ``split``."""
    shared_passages: int
    """Of these, those also relevant in ``of``."""
    share: float
    examples: list[NearTextPair]
    """Queries of ``same_text`` with another id and of ``near``; that of ``split`` is the first of a pair."""


def split_figures(judged: Judged) -> dict[str, SplitFigures]:
    """Figures of each split by name."""
    return {name: _split(queries) for name, queries in judged.items()}


def _split(queries: Mapping[str, Mapping[str, int]]) -> SplitFigures:
    judgements = np.array([len(grades) for grades in queries.values()])
    grades = Counter(grade for judged in queries.values() for grade in judged.values())
    queries_of = Counter(passage for judged in queries.values() for passage, grade in judged.items() if grade > 0)
    return SplitFigures(
        queries=len(queries),
        judgements=int(judgements.sum()),
        judgements_per_query=float(judgements.mean()),
        judgements_a_query=Distribution(**dict(spread(judgements)), histogram=in_doubling_bins(judgements)),
        grades={str(grade): grades[grade] for grade in sorted(grades)},
        negative_grades=sum(count for grade, count in grades.items() if grade < 0),
        queries_without_relevant=sum(max(judged.values()) <= 0 for judged in queries.values()),
        relevant_passages=len(queries_of),
        queries_a_relevant_passage=spread(list(queries_of.values())) if queries_of else None,
    )


def queries_of_passages(judged: Judged, passages: int, most: int) -> QueriesOfPassages:
    """Queries per passage, over all ``passages``; at most ``most`` passages are named."""
    queries_of = Counter(
        passage
        for queries in judged.values()
        for grades in queries.values()
        for passage, grade in grades.items()
        if grade > 0
    )
    counts = np.zeros(passages, dtype=np.int64)
    counts[: len(queries_of)] = list(queries_of.values())
    return QueriesOfPassages(
        **dict(spread(counts)),
        mean=float(counts.mean()),
        share_without=float((counts == 0).mean()),
        histogram=in_doubling_bins(counts),
        most_asked=[
            MostAsked(id=id_, queries=count)
            for id_, count in sorted(queries_of.items(), key=lambda passage: (-passage[1], passage[0]))[:most]
        ],
    )


def leakage_of(dataset: Dataset, judged: Judged, queries: TextPass, most: int) -> list[Leakage]:
    """Leakage between each split and each earlier one, in the order train, dev, test, others."""
    row_of = {id_: row for row, id_ in enumerate(dataset.query_ids)}
    rows = {name: np.array([row_of[id_] for id_ in split], dtype=np.int64) for name, split in judged.items()}
    pairs = {
        (before, name): (_same(queries, rows[name], rows[before]), _near(queries, rows[name], rows[before]))
        for before, name in combinations(judged, 2)
    }
    shown = {
        names: [*[(row, earlier, 1.0) for row, earlier in same if row != earlier][:most], *near[:most]]
        for names, (same, near) in pairs.items()
    }
    named = _named(dataset, {row for examples in shown.values() for example in examples for row in example[:2]})
    relevant = {
        name: {passage for grades in split.values() for passage, grade in grades.items() if grade > 0}
        for name, split in judged.items()
    }
    leaks = []
    for (before, name), (same, near) in pairs.items():
        shared = len(relevant[name] & relevant[before])
        leaks.append(
            Leakage(
                split=name,
                of=before,
                queries=len(rows[name]),
                same_id=len(judged[name].keys() & judged[before].keys()),
                same_text=len(same),
                near=len(near),
                relevant_passages=len(relevant[name]),
                shared_passages=shared,
                share=shared / len(relevant[name]) if relevant[name] else 0.0,
                examples=[
                    NearTextPair(similarity=alike, pair=[named[row], named[earlier]])
                    for row, earlier, alike in shown[before, name]
                ],
            )
        )
    return leaks


def _named(dataset: Dataset, rows: Collection[int]) -> dict[int, NamedText]:
    """The queries at ``rows``, by row; without rows, the file is not read."""
    if not rows:
        return {}
    return {row: NamedText(id=query.id, text=query.text) for row, query in enumerate(dataset.queries()) if row in rows}


def _same(queries: TextPass, rows: NDArray[np.int64], before: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Rows with the text of a row of ``before``, each with that row: itself if it is in both, otherwise the first."""
    first = _first_rows(queries, before)
    also = set(before.tolist())
    groups: Sequence[int] = queries.group[rows].tolist()
    return [
        (row, row if row in also else first[group])
        for row, group in zip(rows.tolist(), groups, strict=True)
        if group in first
    ]


def _near(queries: TextPass, rows: NDArray[np.int64], before: NDArray[np.int64]) -> list[tuple[int, int, float]]:
    """Rows with a near-duplicate but no equal text in ``before``, each with the nearest row and its similarity."""
    first = _first_rows(queries, before)
    nearest: dict[int, tuple[int, float]] = {}
    for one, other, alike in queries.near.pairs:  # the most similar first
        left, right = int(queries.group[one]), int(queries.group[other])
        for group, near in ((left, right), (right, left)):
            if near in first:
                nearest.setdefault(group, (first[near], alike))
    groups: Sequence[int] = queries.group[rows].tolist()
    pairs = [
        (row, *nearest[group])
        for row, group in zip(rows.tolist(), groups, strict=True)
        if group in nearest and group not in first
    ]
    return sorted(pairs, key=lambda pair: -pair[2])


def _first_rows(queries: TextPass, rows: NDArray[np.int64]) -> dict[int, int]:
    """The first of ``rows`` with each text, by the text's group."""
    return dict(zip(queries.group[rows[::-1]].tolist(), rows[::-1].tolist(), strict=True))
