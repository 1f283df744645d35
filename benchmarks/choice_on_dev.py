"""How well the ladder chooses from few dev questions, by RR@10 alone and by RR@10 and log rank.

    .venv/bin/python benchmarks/choice_on_dev.py --data DIRECTORY --work WORK

DIRECTORY and WORK are those of same_labels.py. The ladder's heads are trained once for each set, without the dev
questions. Then it chooses by some of the dev questions, drawn at random, and what it chose is measured on the others,
in RR@10. No test question is ranked. Writes results/choice_on_dev.json and .md.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from same_labels import OneSet

from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn.examples import unseen_queries
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.judged import Judged
from gnnretrieval.training.gnn.ladder import climb, head_steps, heads_of, log_ranks, message_graph, reciprocal

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("squad-open", "squad-open-by-passage", "fairytaleqa")
QUESTIONS = (122, 500)
EVIDENCE = TrainSettings.parse({}).evidence
BY = {"RR@10": False, "RR@10 and log rank": True}


def judged_of(one_set: OneSet) -> tuple[Judged, list[int]]:
    """All dev questions, at most 2,000, with the heads to choose from; and the steps of these heads."""
    graph, features = one_set.graph, one_set.features
    taught = unseen_queries(graph, features, "auto")
    held_out = held_out_queries(graph, one_set.dataset, features, 0, taught)
    inside = message_graph(graph, held_out.hidden)
    steps = head_steps(inside, torch.from_numpy(taught))
    heads = heads_of(inside, steps, 0, torch.from_numpy(taught))
    return Judged.of(inside, heads, held_out.queries, held_out.relevant), steps


def chosen(judged: Judged, steps: list[int], rows: NDArray[np.int64], by_rank: bool) -> tuple[Messages, float]:
    """What the ladder chooses by some of the questions, and its p."""

    def reciprocals(messages: Messages) -> NDArray[np.float64]:
        return reciprocal(judged.first_ranks(messages)[rows])

    def ranks(messages: Messages) -> NDArray[np.float64]:
        return log_ranks(judged.first_ranks(messages)[rows])

    found = climb(reciprocals, steps=steps, by_rank=ranks if by_rank else None)
    return found.messages, found.p


def measured(judged: Judged, steps: list[int], questions: int, draws: int) -> dict[str, Any]:
    """Gain over the dual-encoder on the other questions, by what decided."""
    total = len(judged.relevant)
    rng = np.random.default_rng(0)
    gains: dict[str, list[float]] = {}
    for _ in range(draws):
        rows = rng.permutation(total)[:questions]
        others = np.setdiff1d(np.arange(total), rows)
        base = reciprocal(judged.first_ranks(Messages()))[others].mean()
        for name, by_rank in BY.items():
            messages, p = chosen(judged, steps, rows, by_rank)
            gain = 100 * float(reciprocal(judged.first_ranks(messages))[others].mean() - base)
            gains.setdefault(f"{name}, every gain", []).append(gain)
            gains.setdefault(f"{name}, p ≤ {EVIDENCE:g}", []).append(gain if p <= EVIDENCE else 0.0)
    return {
        "others": total - questions,
        "rows": {
            name: {"mean": fmean(values), "error": stdev(values) / len(values) ** 0.5, "lowest": min(values)}
            for name, values in gains.items()
        },
    }


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# What the ladder chooses from few dev questions",
        "",
        "Gain in RR@10 × 100 over the dual-encoder on the dev questions that did not choose, mean of",
        f"{results['draws']} draws ± its standard error; the lowest of a draw in brackets. `train` chooses by RR@10",
        f"and log rank; before, it chose by RR@10 alone. p ≤ {EVIDENCE:g} is its default: a gain that may be chance",
        "leaves the dual-encoder as it is. Here no training questions join the dev questions, as over an encoder",
        "that has learned from them all. The way of choosing was itself found on these sets.",
        "",
        "`python benchmarks/choice_on_dev.py` makes this page.",
        "",
    ]
    names = list(next(iter(next(iter(results["sets"].values())).values()))["rows"])
    lines += ["| set | dev questions | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for name, of_set in results["sets"].items():
        for questions, figures in of_set.items():
            cells = [
                f"{row['mean']:.1f} ± {row['error']:.1f} ({row['lowest']:.1f})" for row in figures["rows"].values()
            ]
            lines.append(f"| {name} | {questions} | " + " | ".join(cells) + " |")
    revisions = ", ".join(f"{name} {revision[:7]}" for name, revision in results["revisions"].items())
    return "\n".join([*lines, "", f"Revisions: {revisions}."]) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="As of same_labels.py.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="As of same_labels.py.")
@click.option("--draws", default=20, show_default=True, help="How many.")
@click.option("--only", multiple=True, type=click.Choice(SETS), default=SETS, help="Some of the sets.")
def main(data: Path, work: Path, draws: int, only: tuple[str, ...]) -> None:
    """Choose, measure, and write the page."""
    keep_freed_memory()
    path = RESULTS / "choice_on_dev.json"
    kept = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}, "revisions": {}}
    sets, revisions = kept["sets"], kept["revisions"]
    for name in only:
        judged, steps = judged_of(OneSet.of(name, data, work))
        sets[name] = {str(questions): measured(judged, steps, questions, draws) for questions in QUESTIONS}
        say(f"{name}: {sets[name]}")
        revisions[name] = git_revision() or "unknown"
        sets, revisions = ({name: of_all[name] for name in SETS if name in of_all} for of_all in (sets, revisions))
        results = {"sets": sets, "draws": draws, "revisions": revisions, "versions": library_versions()}
        write_json(path, results)
        path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
