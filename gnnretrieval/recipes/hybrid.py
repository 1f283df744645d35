"""BM25 joined with each dense ranking: what is mostly deployed, and whether the graph still helps there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnretrieval.data.trec import Run
from gnnretrieval.evaluation import AnswerHits, Comparison, choose_fusion, compare, fuse
from gnnretrieval.recipes.recipe import CompareSettings


def compare_hybrids(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    settings: CompareSettings,
    bm25: str,
    dense: tuple[str, str],
    provenance: dict[str, Any],
    answers: AnswerHits,
    *,
    dev_runs: Mapping[str, Run] | None = None,
    dev_qrels: Mapping[str, Mapping[str, int]] | None = None,
) -> Comparison | None:
    """BM25 alone and joined with each of two dense systems, tested against it with the first; None: not asked for.

    The provenance has under ``fusion`` how they are joined: ``chosen on dev``, or the method. Where dev chose,
    ``fusion_choices`` has the method, weights, dev values and p of each hybrid.

    Args:
        qrels: Of the reported split.
        runs: By system.
        settings: ``fuse`` says how they are joined.
        bm25: Its name among ``runs``.
        dense: The dual-encoder and the GNN-encoder.
        provenance: Of the comparison.
        answers: In the passages of ``runs``, for measures of answers.
        dev_runs: The same systems' runs of dev questions, which ``fuse = "chosen"`` chooses by; None: it joins by rrf.
        dev_qrels: Of the dev questions.
    """
    if settings.fuse == "none":
        return None
    method = "rrf" if settings.fuse == "chosen" else settings.fuse
    choices = {}
    if settings.fuse == "chosen" and dev_runs and dev_qrels:
        choices = {name: choose_fusion([dev_runs[bm25], dev_runs[name]], dev_qrels) for name in dense}
    systems = {bm25: runs[bm25]}
    for name in dense:
        how, weights = (choices[name].method, choices[name].weights) if name in choices else (method, None)
        systems[f"{bm25}+{name}"] = fuse([runs[bm25], runs[name]], how, weights=weights, depth=settings.depth)
    joined_by = {**provenance, "fusion": "chosen on dev" if choices else method}
    if choices:
        joined_by["fusion_choices"] = {f"{bm25}+{name}": choice.as_json() for name, choice in choices.items()}
    return compare(qrels, systems, f"{bm25}+{dense[0]}", settings.measures, settings.split, joined_by, answers=answers)
