"""How many steps a head over few labels should take, measured on training questions only.

    .venv/bin/python benchmarks/few_labels.py --data DIRECTORY --work WORK

On docstrings-cut and fairytaleqa, the head is trained on the labels of 150, 500 and 1,500 training questions, and
measured on 1,000 others. No dev or test question is used. ``WORK`` is that of same_labels.py, whose graphs are reused.
Writes results/few_labels.json and results/few_labels.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from same_labels import OneSet

from gnnretrieval.nn.label_messages import Messages, message_vectors
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.ladder import STEPS, message_graph, reciprocal_ranks, steps_over

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("docstrings-cut", "fairytaleqa")
QUESTIONS, ASKED = (150, 500, 1500), 1000
TRIED = (0, 7, 20, 60, 100, 300, 900)


def measure(one_set: OneSet, seed: int = 0) -> list[dict[str, Any]]:
    """RR@10 × 100 by number of questions and steps; ``chosen``: the steps that the ladder tries."""
    graph = message_graph(one_set.graph)
    relevant: dict[int, list[int]] = {}
    for query, passage in graph.labels.tolist():
        relevant.setdefault(query, []).append(passage)
    order = np.random.default_rng(seed).permutation(sorted(relevant))
    measured, others = order[:ASKED], order[ASKED:]
    queries, wanted = graph.queries[measured], [relevant[row] for row in measured.tolist()]
    rows = []
    for count in QUESTIONS:
        hidden = np.ones(len(graph.queries), dtype=bool)
        hidden[others[:count]] = False
        inside = graph.without(torch.from_numpy(hidden))
        row: dict[str, Any] = {"questions": count, "labels": len(inside.labels)}
        for steps in TRIED:
            heads = train_heads(inside, steps, seed=seed) if steps else None
            ranks = reciprocal_ranks(message_vectors(inside, heads, Messages(steps)), queries, wanted)
            row[str(steps)] = round(100 * float(ranks.mean()), 1)
        rows.append({**row, "chosen": [steps_over(len(inside.labels), steps) for steps in STEPS]})
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# Heads over few labels",
        "",
        "RR@10 × 100 of 1,000 training questions by a linear head that was trained for so many steps on the labels of",
        "some others, over frozen MiniLM; one seed. The best of a row is bold; the ladder tries the last column.",
        "`python benchmarks/few_labels.py` makes this page.",
    ]
    for name, rows in results["sets"].items():
        lines += ["", f"## {name}", "", "| questions | labels | " + " | ".join(map(str, TRIED)) + " | tried |"]
        lines.append("|---:|---:|" + "---:|" * len(TRIED) + "---|")
        for row in rows:
            best = max(row[str(steps)] for steps in TRIED)
            cells = [f"**{row[str(steps)]}**" if row[str(steps)] == best else str(row[str(steps)]) for steps in TRIED]
            tried = ", ".join(map(str, row["chosen"]))
            lines.append(f"| {row['questions']:,} | {row['labels']:,} | {' | '.join(cells)} | {tried} |")
    return "\n".join([*lines, "", f"Revision {results['git_revision']}."]) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="That of same_labels.py.")
def main(data: Path, work: Path) -> None:
    """Measure, and write the page."""
    sets = {name: measure(OneSet.of(name, data, work)) for name in SETS}
    results = {"sets": sets, "git_revision": git_revision(), "versions": library_versions()}
    write_json(RESULTS / "few_labels.json", json.loads(json.dumps(results)))
    (RESULTS / "few_labels.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
