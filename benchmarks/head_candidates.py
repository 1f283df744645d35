"""Which passages a head should be trained against, measured on training questions only.

    .venv/bin/python benchmarks/head_candidates.py --data DIRECTORY --work WORK

A fifth of the training questions, or all of a fifth of the labelled passages (by passage), are left out of training and
graph, and at most 1,500 of them are measured. No dev or test question is used. WORK is that of same_labels.py, whose
graphs are reused. Writes results/head_candidates.json and .md.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from same_labels import OneSet, is_at_hand, tested
from same_labels_page import DEBIAN, difference

from gnnretrieval.nn.label_messages import Messages, message_vectors
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training.gnn import head as heads
from gnnretrieval.training.gnn.ladder import (
    MEANS,
    SIDES,
    STEPS,
    TRAINED_MEANS,
    message_graph,
    reciprocal_ranks,
    steps_over,
)

RESULTS = Path(__file__).resolve().parent / "results"
BY_PASSAGE = " by passage"
SETS = (DEBIAN[0], "docstrings-cut", "docstrings", f"fairytaleqa{BY_PASSAGE}", "squad-open", f"squad-open{BY_PASSAGE}")
BATCH, LABELLED, ANY = "the batch's", "512 random labelled ones too", "512 of all passages too"
ASKED, SHARE = 1500, 0.2


def measure(one_set: OneSet, by_passage: bool, seed: int = 0) -> dict[str, Any]:
    """RR@10 of the best heads by their candidates; the difference of each to the batch's passages alone."""
    rng, whole = np.random.default_rng(seed), message_graph(one_set.graph)
    relevant: dict[int, list[int]] = {}
    for query, passage in whole.labels.tolist():
        relevant.setdefault(query, []).append(passage)
    hidden = rng.random(len(whole.queries)) < SHARE
    if by_passage:
        left_out = rng.random(len(whole.passages)) < SHARE
        hidden = np.array([left_out[relevant.get(row, [])].any() for row in range(len(whole.queries))])
    graph = whole.without(torch.from_numpy(hidden))
    asked = [row for row in rng.permutation(np.flatnonzero(hidden)).tolist() if row in relevant][:ASKED]
    queries, wanted = whole.queries[asked], [relevant[row] for row in asked]
    best: dict[str, NDArray[np.float64]] = {}
    for candidates, steps, sides, mean in product((BATCH, LABELLED, ANY), STEPS, SIDES, TRAINED_MEANS):
        vars(heads)["OTHERS"] = 0 if candidates == BATCH else 512
        others = torch.arange(len(graph.passages)) if candidates == ANY else None
        steps = steps_over(len(graph.labels), steps)
        trained = heads.train_heads(graph, steps, sides=sides, mean=mean, seed=seed, others=others)
        for weight in MEANS:
            vectors = message_vectors(graph, trained, Messages(steps, weight))
            values = reciprocal_ranks(vectors, queries, wanted)
            if candidates not in best or values.mean() > best[candidates].mean():
                best[candidates] = values
    by_question = {name: dict(zip(map(str, asked), values.tolist(), strict=True)) for name, values in best.items()}
    return {
        "labels": len(graph.labels),
        "questions": len(asked),
        "RR@10": {name: float(values.mean()) for name, values in best.items()},
        "against": {name: tested(by_question[name], by_question[BATCH]) for name in (LABELLED, ANY)},
    }


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# What a head is trained against",
        "",
        "RR@10 × 100 of training questions that were left out, by the best of the heads that the ladder tries (steps,",
        "separate or shared, with a label mean or without), over frozen MiniLM; one seed. A step's candidates are the",
        "batch's passages, and 512 random ones of those with labels, or of all. By passage: the left-out questions are",
        "about passages without other labels. Δ is to the batch's passages alone, with a 95 % bootstrap interval and",
        "the p of a paired t-test. `python benchmarks/head_candidates.py` makes this page.",
        "",
        f"| set | labels | questions | {BATCH} | {LABELLED} | Δ | {ANY} | Δ |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, figures in results["sets"].items():
        values = {kind: f"{100 * value:.1f}" for kind, value in figures["RR@10"].items()}
        cells = [name, f"{figures['labels']:,}", f"{figures['questions']:,}", values[BATCH]]
        for kind in (LABELLED, ANY):
            cells += [values[kind], difference(figures["against"][kind])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Passages without labels are negatives in every step and positives in none, so heads may learn to rank them",
        "lower. Training draws from the labelled ones: of the two kinds they are ahead on four sets, and at most 0.3",
        "behind on the others.",
    ]
    return "\n".join([*lines, "", f"Revision {results['revision'][:7]}.", ""])


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="That of same_labels.py.")
def main(data: Path, work: Path) -> None:
    """Measure, and write the page."""
    sets: dict[str, Any] = {}
    for name in SETS:
        source = name.removesuffix(BY_PASSAGE)
        if not is_at_hand(source, data, work):
            say(f"{name}: not at hand, left out")
            continue
        sets[name] = measure(OneSet.of(source, data, work), name.endswith(BY_PASSAGE))
        say(f"{name}: {sets[name]}")
    results = {"sets": sets, "revision": git_revision() or "unknown", "versions": library_versions()}
    write_json(RESULTS / "head_candidates.json", json.loads(json.dumps(results)))
    (RESULTS / "head_candidates.md").write_text(markdown(json.loads(json.dumps(results))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
