"""How sure a choice of fusion has to be: levels of significance, by the number of dev questions.

    .venv/bin/python benchmarks/fusion_level.py --data DIRECTORY --work WORK

DIRECTORY and WORK are those of same_labels.py, which runs first. On each set, 200 times, a few dev questions choose how
to fuse two rankings, and the choice is measured on the other dev questions. No test question is used. Writes
results/fusion_level.json and .md.
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
from same_labels import BM25_PLAIN, DEPTH, DUAL, GNN, MEASURE, RESULTS, OneSet

from gnnretrieval import resampling
from gnnretrieval.baselines import LEXICAL
from gnnretrieval.baselines.rankings import open_baselines
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.evaluation.fusion_choice import HALVES, LEVEL, Fusion, chosen, fusion_values
from gnnretrieval.index import open_index
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.progress import progress, show_progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.training.gnn.ladder import rows_of

SETS = ("squad-open", "squad-open-by-passage", "fairytaleqa")  # with enough dev questions to measure on
BOTH = "linear-head+label-mean+label-prior"
PAIRS = ((BM25_PLAIN, DUAL), (LEXICAL, DUAL), (LEXICAL, BOTH), (BM25_PLAIN, GNN), (LEXICAL, GNN))
LEVELS, QUESTIONS, DRAWS = (0.05, 0.3, 1.0), (50, 122, 300), 200


def runs_of(one: OneSet) -> tuple[dict[str, Run], dict[str, Mapping[str, int]]]:
    """Dev runs by system, and the judgements of at most 2,000 dev questions."""
    judged = one.dataset.split("dev")
    names = list(judged)
    judged = {names[row]: judged[names[row]] for row in rows_of(len(names)).tolist()}
    texts = {query.id: query.text for query in one.dataset.queries_of("dev") if query.id in judged}
    vectors = one.features.queries[one.features.rows_of(texts)]
    baselines = open_baselines(one.place / "baselines-0").runs(dev=True)
    bm25 = BM25((passage.full_text for passage in one.dataset.passages()), total=len(one.dataset.passage_ids))
    indexes = {GNN: one.place / "linear-0" / "index", DUAL: one.place / "index-dual-encoder"}
    runs = {BM25_PLAIN: bm25_run(bm25, texts, one.dataset.passage_ids, DEPTH)}
    runs |= {name: index_run(open_index(place), list(texts), vectors, DEPTH) for name, place in indexes.items()}
    return runs | {name: baselines[name] for name in (LEXICAL, BOTH)}, judged


def measured(values: Mapping[Fusion, NDArray[np.float64]], questions: int) -> dict[str, list[float]]:
    """Gain over the better run of the choice at each level, of every draw, on the questions that did not choose."""
    rng = np.random.default_rng(0)
    gains: dict[str, list[float]] = {f"{level:g}": [] for level in LEVELS}
    total = len(values[HALVES[0]])
    for _ in range(DRAWS):
        order = rng.permutation(total)
        some = {fusion: its[order[:questions]] for fusion, its in values.items()}
        rest = {fusion: float(its[order[questions:]].mean()) for fusion, its in values.items()}
        half = rest[max(HALVES, key=lambda one: some[one].mean())]
        for level in LEVELS:
            choice = chosen(some, MEASURE, level)
            gains[f"{level:g}"].append(rest[Fusion(choice.method, choice.weights)] - half)
    return gains


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# How sure a choice of fusion has to be",
        "",
        "`python benchmarks/fusion_level.py` makes this page. A few dev questions choose how to fuse two rankings:",
        "a fusion is accepted up to a level of its p, else the better run stays alone. RR@10 × 100 over that run, on",
        f"the other dev questions: mean of {DRAWS} draws, and in brackets their 5th percentile.",
        f"The default is {LEVEL:g}; 1 accepts any gain.",
        "",
        "| set | runs | dev questions | " + " | ".join(f"p ≤ {level:g}" for level in LEVELS) + " |",
        "|---|---|---:|" + "---:|" * len(LEVELS),
    ]
    sums: dict[tuple[str, str], list[float]] = {}
    for row in results["rows"]:
        cells = [f"{100 * mean:+.2f} ({100 * low:+.1f})" for mean, low in row["gains"].values()]
        lines.append(f"| {row['set']} | {' + '.join(row['runs'])} | {row['questions']} | " + " | ".join(cells) + " |")
        for level, (mean, _) in row["gains"].items():
            sums.setdefault((str(row["questions"]), level), []).append(mean)
    for questions in QUESTIONS:
        means = [f"**{100 * fmean(sums[str(questions), f'{level:g}']):+.2f}**" for level in LEVELS]
        lines.append(f"| **all** | | {questions} | " + " | ".join(means) + " |")
    return "\n".join([*lines, "", f"Revision {results['revision'][:7]}.", ""])


def rows_of_set(one: OneSet) -> Sequence[dict[str, Any]]:
    """The rows of one set."""
    runs, judged = runs_of(one)
    rows = []
    with progress(f"{one.name}: pairs", len(PAIRS), "pairs") as meter:
        for pair in PAIRS:
            values = fusion_values([runs[name] for name in pair], judged, MEASURE)
            for questions in QUESTIONS:
                gains = {
                    level: (fmean(its), float(np.percentile(its, 5)))
                    for level, its in measured(values, questions).items()
                }
                rows.append({"set": one.name, "runs": pair, "questions": questions, "gains": gains})
            meter.advance()
    return rows


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="That of same_labels.py.")
def main(data: Path, work: Path) -> None:
    """Measure, and write the page."""
    resampling.RESAMPLES = 2000  # a draw's p needs no more
    rows = [row for name in SETS for row in rows_of_set(OneSet.of(name, data, work))]
    path = RESULTS / "fusion_level.json"
    write_json(path, {"rows": json.loads(json.dumps(rows)), "revision": git_revision()})
    path.with_suffix(".md").write_text(markdown(json.loads(path.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
