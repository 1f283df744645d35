"""Figures of each split's judgements, and leakage between splits: shared questions, near-duplicates and passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.quantiles import in_doubling_bins, spread
from gnnretrieval.data.inspection.text_figures import TextPass

Judged = Mapping[str, Mapping[str, Mapping[str, int]]]  # relevance by passage by query by split


def split_figures(judged: Judged) -> dict[str, dict[str, Any]]:
    """Figures of each split by name, as JSON values; relevant means a relevance above 0.

    Returns:
        ``queries``, ``judgements``, ``judgements_per_query`` (their mean), ``judgements_a_query`` (``median``, ``p95``,
        ``max``, ``histogram``), ``grades`` (judgements by relevance, as text), ``negative_grades`` (judgements below
        0), ``queries_without_relevant`` (every judgement is 0 or less), ``relevant_passages``,
        ``queries_a_relevant_passage`` (``median``, ``p95``, ``max``).
    """
    return {name: _split(queries) for name, queries in judged.items()}


def _split(queries: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    counts = np.array([len(grades) for grades in queries.values()])
    grades = Counter(grade for judged in queries.values() for grade in judged.values())
    asked = Counter(passage for judged in queries.values() for passage, grade in judged.items() if grade > 0)
    return {
        "queries": len(queries),
        "judgements": int(counts.sum()),
        "judgements_per_query": float(counts.mean()),
        "judgements_a_query": {**spread(counts), "histogram": in_doubling_bins(counts)},
        "grades": {str(grade): grades[grade] for grade in sorted(grades)},
        "negative_grades": sum(count for grade, count in grades.items() if grade < 0),
        "queries_without_relevant": sum(max(judged.values()) <= 0 for judged in queries.values()),
        "relevant_passages": len(asked),
        "queries_a_relevant_passage": spread(list(asked.values())) if asked else None,
    }


def queries_of_passages(judged: Judged, passages: int, most: int) -> dict[str, Any]:
    """Number of queries of all splits that a passage is relevant to, over all passages.

    Returns:
        ``median``, ``p95``, ``max``, ``mean``, ``share_without`` (passages that are relevant to no query),
        ``histogram`` and ``most_asked`` (``id`` and ``queries`` of the passages with the most queries).
    """
    asked = Counter(
        passage
        for queries in judged.values()
        for grades in queries.values()
        for passage, grade in grades.items()
        if grade > 0
    )
    counts = np.zeros(passages, dtype=np.int64)
    counts[: len(asked)] = list(asked.values())
    return {
        **spread(counts),
        "mean": float(counts.mean()),
        "share_without": float((counts == 0).mean()),
        "histogram": in_doubling_bins(counts),
        "most_asked": [
            {"id": id_, "queries": count}
            for id_, count in sorted(asked.items(), key=lambda passage: (-passage[1], passage[0]))[:most]
        ],
    }


def leakage_of(dataset: Dataset, judged: Judged, queries: TextPass, most: int) -> list[dict[str, Any]]:
    """Leakage between each split and each earlier one, in the order train, dev, test, others, as JSON values.

    Returns:
        For each pair: ``split``, ``of`` (the earlier split), ``queries`` (of ``split``), ``same_id`` (queries in both),
        ``same_text`` (queries whose normalised text is in ``of``), ``near`` (other queries that have a near-duplicate
        in ``of``), ``relevant_passages`` (of ``split``), ``shared_passages`` (of these, those also relevant in ``of``),
        ``share``, and ``examples`` of ``same_text`` (with another id) and ``near``: ``similarity``, and ``id`` and
        ``text`` of both queries, that of ``split`` first.
    """
    row_of = {id_: row for row, id_ in enumerate(dataset.query_ids)}
    rows = {name: np.array([row_of[id_] for id_ in asked], dtype=np.int64) for name, asked in judged.items()}
    relevant = {
        name: {passage for grades in asked.values() for passage, grade in grades.items() if grade > 0}
        for name, asked in judged.items()
    }
    found, wanted = list[dict[str, Any]](), dict[int, str]()
    for before, name in combinations(judged, 2):
        same, near = _same(queries, rows[name], rows[before]), _near(queries, rows[name], rows[before])
        other = [(row, earlier, 1.0) for row, earlier in same if row != earlier]
        shown = [*other[:most], *near[:most]]
        wanted |= {row: "" for example in shown for row in example[:2]}
        shared = len(relevant[name] & relevant[before])
        found.append(
            {
                "split": name,
                "of": before,
                "queries": len(rows[name]),
                "same_id": len(judged[name].keys() & judged[before].keys()),
                "same_text": len(same),
                "near": len(near),
                "relevant_passages": len(relevant[name]),
                "shared_passages": shared,
                "share": shared / len(relevant[name]) if relevant[name] else 0.0,
                "examples": shown,
            }
        )
    if wanted:
        wanted |= {row: query.text for row, query in enumerate(dataset.queries()) if row in wanted}
    for pair in found:
        pair["examples"] = [
            {"similarity": alike, "pair": [{"id": dataset.query_ids[row], "text": wanted[row]} for row in example]}
            for *example, alike in pair["examples"]
        ]
    return found


def _same(queries: TextPass, rows: NDArray[np.int64], before: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Rows with the text of a row of ``before``, each with that row: itself if it is in both, otherwise the first."""
    first = dict(zip(queries.group[before[::-1]].tolist(), before[::-1].tolist(), strict=True))
    also = set(before.tolist())
    groups: Sequence[int] = queries.group[rows].tolist()
    return [
        (row, row if row in also else first[group])
        for row, group in zip(rows.tolist(), groups, strict=True)
        if group in first
    ]


def _near(queries: TextPass, rows: NDArray[np.int64], before: NDArray[np.int64]) -> list[tuple[int, int, float]]:
    """Rows with a near-duplicate but no equal text in ``before``, each with the nearest row and its similarity."""
    first = dict(zip(queries.group[before[::-1]].tolist(), before[::-1].tolist(), strict=True))
    nearest: dict[int, tuple[int, float]] = {}
    for one, other, alike in queries.near.pairs:  # the most similar first
        left, right = int(queries.group[one]), int(queries.group[other])
        for group, its in ((left, right), (right, left)):
            if its in first:
                nearest.setdefault(group, (first[its], alike))
    groups: Sequence[int] = queries.group[rows].tolist()
    found = [
        (row, *nearest[group])
        for row, group in zip(rows.tolist(), groups, strict=True)
        if group in nearest and group not in first
    ]
    return sorted(found, key=lambda pair: -pair[2])
