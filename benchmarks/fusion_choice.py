"""How to choose the weights of a fusion on a few dev questions.

    .venv/bin/python benchmarks/fusion_choice.py --data DIRECTORY --work WORK

DIRECTORY and WORK are those of same_labels.py, which runs first. On each set, 200 times, a few dev questions choose how
to fuse two rankings, and the choice is measured on the other dev questions. No test question is used. Writes
results/fusion_choice.json and .md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from same_labels import DEPTH, MEASURE, RESULTS, OneSet, is_at_hand
from same_labels_page import BM25_PLAIN, DEBIAN, DUAL, GNN

from gnnretrieval import resampling
from gnnretrieval.baselines import LEXICAL
from gnnretrieval.baselines.rankings import open_baselines
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.evaluation.fusion_choice import WEIGHTS, fusion_values, is_kept, mean_best_weight
from gnnretrieval.index import open_index
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.progress import progress, show_progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.training.gnn.judged import rows_of

SETS = ("squad-open", "squad-open-by-passage", "fairytaleqa", *DEBIAN)  # with enough dev questions to measure on
BOTH = "linear-heads-apart+label-mean+label-prior"
PAIRS = ((BM25_PLAIN, DUAL), (LEXICAL, DUAL), (LEXICAL, BOTH), (BM25_PLAIN, GNN), (LEXICAL, GNN))
QUESTIONS, DRAWS = (50, 122, 300), 100
EQUAL, BEST, CAREFUL, MEAN = "equal weights", "best weight", "best weight where p ≤ 0.3", "mean of best weights"
GAINING, DEFAULT = "the mean where it gains", "the mean within a standard error"


def runs_of(one_set: OneSet) -> tuple[dict[str, Run], Mapping[str, Mapping[str, int]]]:
    """Dev runs by system, and the judgements of at most 2,000 dev questions."""
    judged = one_set.dataset.split("dev")
    names = list(judged)
    judged = {names[row]: judged[names[row]] for row in rows_of(len(names)).tolist()}
    texts = {query.id: query.text for query in one_set.dataset.queries_of("dev") if query.id in judged}
    vectors = one_set.features.queries[one_set.features.rows_of(texts)]
    baselines = open_baselines(one_set.place / "baselines-0").runs(dev=True)
    bm25 = BM25((passage.full_text for passage in one_set.dataset.passages()), total=len(one_set.dataset.passage_ids))
    indexes = {GNN: one_set.place / "linear-0" / "index", DUAL: one_set.place / "index-dual-encoder"}
    runs = {BM25_PLAIN: bm25_run(bm25, texts, one_set.dataset.passage_ids, DEPTH)}
    runs |= {name: index_run(open_index(place), list(texts), vectors, DEPTH) for name, place in indexes.items()}
    return runs | {name: baselines[name] for name in (LEXICAL, BOTH)}, judged


def weights_of(values: NDArray[np.float64]) -> dict[str, float]:
    """The second run's weight by each rule, from values by weight and question ``(w, q)``."""
    means = values.mean(1)
    half, best = max((0, -1), key=lambda row: means[row]), int(means.argmax())
    likely = min(resampling.corrected_ps(values[1:-1] - values[half])) <= 0.3
    mean = round(10 * mean_best_weight(values))  # row of the nearest weight that is measured
    kept = mean if is_kept(values[mean] - values[half]) else half
    gaining = mean if means[mean] > means[half] else half
    rows = {BEST: best, CAREFUL: best if likely else half, MEAN: mean, GAINING: gaining, DEFAULT: kept}
    return {EQUAL: 0.5, **{rule: WEIGHTS[row] for rule, row in rows.items()}}


def measured(values: NDArray[np.float64], questions: int) -> dict[str, list[float]]:
    """Gain over the better run of the choice by each rule, of every draw, on the questions that did not choose.

    ``values`` are by weight and question ``(w, q)``.
    """
    rng = np.random.default_rng(0)
    gains: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        order = rng.permutation(values.shape[1])
        few, rest = values[:, order[:questions]], values[:, order[questions:]].mean(1)
        half = rest[max((0, -1), key=lambda row: few[row].mean())]
        for rule, weight in weights_of(few).items():
            gains.setdefault(rule, []).append(float(rest[round(10 * weight)] - half))
    return gains


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    rules = (EQUAL, BEST, CAREFUL, MEAN, GAINING, DEFAULT)
    lines = [
        "# How to choose the weights of a fusion",
        "",
        "`python benchmarks/fusion_choice.py` makes this page. A few dev questions choose the weights of two rankings'",
        "normalised scores, of 0, 0.1 … 1, where 0 and 1 are one ranking alone. RR@10 × 100 over the ranking that is",
        f"better on these questions, on the other dev questions: mean of {DRAWS} draws, and in brackets their 5th",
        "percentile. `mean of best weights` is the mean, over bootstrap resamples of the few questions, of the best",
        "weight. `where p ≤ 0.3` keeps the better ranking alone where the best gain is less sure (max-t test), and the",
        "last two where it gains nothing, or changes nothing or loses more than a standard error. The last is the",
        "default.",
        "",
        "| set | runs | dev questions | " + " | ".join(rules) + " |",
        "|---|---|---:|" + "---:|" * len(rules),
    ]
    sums: dict[tuple[str, str], list[float]] = {}
    for row in results["rows"]:
        cells = [f"{100 * mean:+.2f} ({100 * low:+.1f})" for mean, low in row["gains"].values()]
        lines.append(f"| {row['set']} | {' + '.join(row['runs'])} | {row['questions']} | " + " | ".join(cells) + " |")
        for rule, (mean, _) in row["gains"].items():
            sums.setdefault((str(row["questions"]), rule), []).append(mean)
    for questions in QUESTIONS:
        means = [f"**{100 * fmean(sums[str(questions), rule]):+.2f}**" for rule in rules]
        lines.append(f"| **all** | | {questions} | " + " | ".join(means) + " |")
    return "\n".join([*lines, "", f"Revision {results['revision'][:7]}.", ""])


def rows_of_set(one_set: OneSet) -> Sequence[dict[str, Any]]:
    """The rows of one set."""
    runs, judged = runs_of(one_set)
    rows = []
    with progress(f"{one_set.name}: pairs", len(PAIRS), "pairs") as meter:
        for pair in PAIRS:
            values_of = fusion_values([runs[name] for name in pair], judged, MEASURE)
            values = np.stack([values_of(weight) for weight in WEIGHTS])
            for questions in QUESTIONS:
                gains = {
                    rule: (fmean(draws), float(np.percentile(draws, 5)))
                    for rule, draws in measured(values, questions).items()
                }
                rows.append({"set": one_set.name, "runs": pair, "questions": questions, "gains": gains})
            meter.advance()
    return rows


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="That of same_labels.py.")
def main(data: Path, work: Path) -> None:
    """Measure, and write the page."""
    resampling.RESAMPLES = 2000  # a draw's p needs no more
    at_hand = [name for name in SETS if is_at_hand(name, data, work)]
    rows = [row for name in at_hand for row in rows_of_set(OneSet.of(name, data, work))]
    path = RESULTS / "fusion_choice.json"
    write_json(path, {"rows": json.loads(json.dumps(rows)), "revision": git_revision()})
    path.with_suffix(".md").write_text(markdown(json.loads(path.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
