"""Statistics of benchmarks/gnn_encoder.py: means over seeds, differences and their tests."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from gnn_encoder_page import DUAL, GNN

from gnnretrieval.data import Dataset
from gnnretrieval.data.inspection.same_text import text_key
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.evaluation import holm, paired_test, per_query

Measures = Mapping[str, Mapping[str, float]]  # by measure and question
Runs = Sequence[Mapping[str, Any]]  # one a seed, with "measures", "alike" and what "dev" chose
Qrels = Mapping[str, Mapping[str, int]]


def rows_of(runs: Runs, base: Measures) -> dict[str, Any]:
    """A variant's row: every measure over the seeds, and what each seed chose on dev."""
    return {
        "measures": {measure: spread(runs, base, measure) for measure in base},
        "chosen": [run["dev"]["chosen"] for run in runs],
    }


def rr_alike(run: Run, qrels: Qrels, labelled: Collection[str], depth: int) -> dict[str, float]:
    """RR@10 of each question among passages like its relevant ones: with training questions, or without any.

    In a split by passage, relevant passages never have training questions. A ranking gains there by merely placing
    passages with training questions lower; among like passages it does not.

    Args:
        run: Deep rankings.
        qrels: Judgements of the questions.
        labelled: Passages with training questions.
        depth: Number of like passages that are kept for each question.
    """
    kept: Run = {}
    for query, judged in qrels.items():
        own = {passage in labelled for passage, grade in judged.items() if grade > 0}
        kept[query] = [hit for hit in run[query] if (hit.passage_id in labelled) in own][:depth]
    return dict(next(iter(per_query(qrels, kept, ["RR@10"]).values())))


def alike(
    base: dict[str, float],
    variants: Mapping[str, Runs],
    qrels: Qrels,
    passages: Collection[str],
    labelled: Collection[str],
) -> dict[str, Any]:
    """Gain of every variant among passages like the relevant ones, and how many passages have no training questions.

    Args:
        base: :func:`rr_alike` of the dual-encoder.
        variants: Measured runs of each variant, with :func:`rr_alike` of each as ``alike``.
        qrels: Judgements of test.
        passages: All passages.
        labelled: Passages with training questions.
    """
    rows = {
        variant: spread([{"measures": {"RR@10": run["alike"]}} for run in runs], {"RR@10": base}, "RR@10")
        for variant, runs in variants.items()
    }
    asked_for = {p for judged in qrels.values() for p, grade in judged.items() if grade > 0}
    return {
        "passages_without_questions": len(set(passages) - set(labelled)),
        "asked_for_without_questions": len(asked_for - set(labelled)) / len(asked_for),
        DUAL: statistics.mean(base.values()),
        "variants": rows,
    }


def spread(runs: Runs, base: Measures, measure: str) -> dict[str, float]:
    """Mean and deviation over seeds, the difference to the dual-encoder (also of the worst seed), and its p-value.

    The test is a paired t-test over questions, of each question's mean over the seeds.
    """
    means = [statistics.mean(run["measures"][measure].values()) for run in runs]
    test = paired_test(
        _mean_of_seeds(runs, measure), {query: round(value, 9) for query, value in base[measure].items()}
    )
    worst = min(means) - statistics.mean(base[measure].values())
    return {
        "mean": statistics.mean(means),
        "deviation": statistics.stdev(means) if len(means) > 1 else 0.0,
        "difference": test.difference,
        "p": test.p,
        "worst_difference": worst,
    }


def _mean_of_seeds(runs: Runs, measure: str) -> dict[str, float]:
    # Rounded: a mean of three equal values is not always that value, and a test finds these differences significant.
    return {
        query: round(float(np.mean([run["measures"][measure][query] for run in runs])), 9) for query in _questions(runs)
    }


def _questions(runs: Runs) -> list[str]:
    return list(next(iter(runs[0]["measures"].values())))


def against(variants: Mapping[str, Runs]) -> dict[str, dict[str, float]]:
    """Every variant against the default GNN-encoder, by the seeds that both have, Holm-corrected."""
    tests = {
        name: paired_test(_mean_of_seeds(runs, "RR@10"), _mean_of_seeds(variants[GNN][: len(runs)], "RR@10"))
        for name, runs in variants.items()
        if name != GNN
    }
    corrected = holm([test.p for test in tests.values()])
    return {
        name: {"difference": test.difference, "p": test.p, "p_holm": p}
        for (name, test), p in zip(tests.items(), corrected, strict=True)
    }


def domains(dataset: Dataset, qrels: Qrels, pairs: Mapping[str, tuple[Measures, Runs]]) -> list[dict[str, Any]]:
    """RR@10 by domain, of each dual-encoder and the GNN-encoder over it; empty if questions have no domains."""
    domain_of: dict[str, str] = {}
    for line in (dataset.path / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "domain" in record.get("metadata", {}):
            domain_of[record["_id"]] = record["metadata"]["domain"]
    rows = []
    for domain in sorted({domain_of[query] for query in qrels if query in domain_of}):
        chosen = [query for query in qrels if domain_of.get(query) == domain]
        for dual, (base, runs) in pairs.items():
            rows.append({"domain": domain, "over": dual, **_of_some(runs, base, chosen)})
    return rows


def unrepeated(dataset: Dataset, qrels: Qrels, runs: Runs, base: Measures) -> dict[str, Any]:
    """RR@10 of the test questions that no question of the graph repeats word for word."""
    trained_on = {text_key(query.text) for query in dataset.queries_of("train")}
    chosen = [query.id for query in dataset.queries_of("test") if text_key(query.text) not in trained_on]
    return {"of": len(qrels), **_of_some(runs, base, [query for query in chosen if query in qrels])}


def _of_some(runs: Runs, base: Measures, chosen: Sequence[str]) -> dict[str, Any]:
    """RR@10 of the ``chosen`` questions: ``before`` of the dual-encoder, the rest of the runs."""
    part = [{"measures": {"RR@10": {query: run["measures"]["RR@10"][query] for query in chosen}}} for run in runs]
    of_base = {"RR@10": {query: base["RR@10"][query] for query in chosen}}
    before = statistics.mean(of_base["RR@10"].values())
    return {"questions": len(chosen), "before": before, **spread(part, of_base, "RR@10")}
