"""BM25 joined with each dense ranking: what is mostly deployed, and whether the graph still helps there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnretrieval.data.trec import Run
from gnnretrieval.evaluation import AnswerHits, Comparison, compare, fuse
from gnnretrieval.recipes.recipe import CompareSettings


def compare_hybrids(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    settings: CompareSettings,
    bm25: str,
    dense: tuple[str, str],
    provenance: dict[str, Any],
    answers: AnswerHits,
) -> Comparison | None:
    """BM25 alone and joined with each of two dense systems, tested against it with the first; None: not asked for.

    Args:
        qrels: Of the reported split.
        runs: By system.
        settings: ``fuse`` says how they are joined.
        bm25: Its name among ``runs``.
        dense: The dual-encoder and the GNN-encoder.
        provenance: Of the comparison.
        answers: In the passages of ``runs``, for measures of answers.
    """
    if settings.fuse == "none":
        return None
    systems = {bm25: runs[bm25]}
    for name in dense:
        systems[f"{bm25}+{name}"] = fuse([runs[bm25], runs[name]], settings.fuse, depth=settings.depth)
    joined_by = {**provenance, "fusion": settings.fuse}
    return compare(qrels, systems, f"{bm25}+{dense[0]}", settings.measures, settings.split, joined_by, answers=answers)
