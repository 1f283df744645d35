"""How well the ladder chooses from few dev questions: by what measure, and by how much a rung must gain.

    .venv/bin/python benchmarks/choice_on_dev.py --data DIRECTORY --work WORK

DIRECTORY and WORK are those of same_labels.py. The ladder's heads are trained once for each set, without the dev
questions. Then it chooses by some of the dev questions, drawn at random, and what it chose is measured on the others,
in RR@10. No test question is ranked. One of the sets is over a DPR (`encoder train dpr --small`) that was trained on
70 % of the training questions of docstrings-cut, which are the graph's; the others are dev. Writes
results/choice_on_dev.json and .md; with --only, the other sets stay there as they are.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from same_labels import OneSet
from trained_encoder import trained_features

from gnnretrieval.data import Dataset
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
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
OVER_DPR, LEFT_OUT = "docstrings-cut over DPR", 0.3
SETS = ("squad-open", "squad-open-by-passage", "fairytaleqa", OVER_DPR)
QUESTIONS = (122, 500)
ERRORS = (0.0, 0.5, 1.0, 2.0)  # standard errors that a rung must gain
EVIDENCE = TrainSettings.parse({}).evidence
SPLITS = ("train", "dev", "test")
BY = {"RR@10": False, "RR@10 and log rank": True}


def over_dpr(whole: OneSet, place: Path) -> OneSet:
    """A set whose dev questions are training questions left out, over a DPR of the others; made in ``place``."""
    data, source = place / "data", whole.dataset.path
    judged = {split: (source / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines() for split in SPLITS}
    head, *labels = judged["train"]
    ids = np.array(sorted({label.split("\t")[0] for label in labels}))
    left_out = set(np.random.default_rng(0).permutation(ids)[: int(LEFT_OUT * len(ids))].tolist())
    kept = {
        "train": [label for label in labels if label.split("\t")[0] not in left_out],
        "dev": [*(label for label in labels if label.split("\t")[0] in left_out), *judged["dev"][1:]],
        "test": judged["test"][1:],
    }
    (data / "qrels").mkdir(parents=True, exist_ok=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copy(source / name, data / name)
    for split, lines in kept.items():
        (data / "qrels" / f"{split}.tsv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    one_set = whole._replace(name=OVER_DPR, place=place, dataset=Dataset.open(data))
    features = trained_features(one_set, place / "dpr", "dpr", "dpr", 0, one_set.device)
    graph = build_graph(one_set.dataset, features, GraphSettings(), place / "graph", overwrite=True)
    return one_set._replace(features=features, graph=graph)


def judged_of(one_set: OneSet) -> tuple[Judged, list[int]]:
    """All dev questions, at most 2,000, with the heads to choose from; and the steps of these heads."""
    graph, features = one_set.graph, one_set.features
    taught = unseen_queries(graph, features, "auto")
    held_out = held_out_queries(graph, one_set.dataset, features, 0, taught)
    inside = message_graph(graph, held_out.hidden)
    steps = head_steps(inside, torch.from_numpy(taught))
    heads = heads_of(inside, steps, 0, torch.from_numpy(taught))
    return Judged.of(inside, heads, held_out.queries, held_out.relevant), steps


def chosen(
    judged: Judged, steps: list[int], rows: NDArray[np.int64], by_rank: bool = True, errors: float = 1.0
) -> tuple[Messages, float]:
    """What the ladder chooses by some of the questions, and its p."""

    def reciprocals(messages: Messages) -> NDArray[np.float64]:
        return reciprocal(judged.first_ranks(messages)[rows])

    def ranks(messages: Messages) -> NDArray[np.float64]:
        return log_ranks(judged.first_ranks(messages)[rows])

    found = climb(reciprocals, steps=steps, by_rank=ranks if by_rank else None, errors=errors)
    return found.messages, found.p


def measured(judged: Judged, steps: list[int], questions: int, draws: int) -> dict[str, Any]:
    """Gain over the dual-encoder on the other questions, by what decided and by how much a rung must gain."""
    total = len(judged.relevant)
    rng = np.random.default_rng(0)
    gains: dict[str, list[float]] = {}
    by_errors: dict[str, list[float]] = {}

    def gain_of(messages: Messages, rows: NDArray[np.int64]) -> float:
        after, before = (reciprocal(judged.first_ranks(each))[rows].mean() for each in (messages, Messages()))
        return 100 * float(after - before)

    for _ in range(draws):
        rows = rng.permutation(total)[:questions]
        others = np.setdiff1d(np.arange(total), rows)
        for name, by_rank in BY.items():
            messages, p = chosen(judged, steps, rows, by_rank)
            gain = gain_of(messages, others)
            gains.setdefault(f"{name}, every gain", []).append(gain)
            gains.setdefault(f"{name}, p ≤ {EVIDENCE:g}", []).append(gain if p <= EVIDENCE else 0.0)
        for errors in ERRORS:
            messages, _ = chosen(judged, steps, rows, errors=errors)
            by_errors.setdefault(f"{errors:g}", []).append(gain_of(messages, others))
    return {"others": total - questions, "rows": _summary(gains), "errors": _summary(by_errors)}


def _summary(gains: dict[str, list[float]]) -> dict[str, Any]:
    return {
        name: {"mean": fmean(values), "error": stdev(values) / len(values) ** 0.5, "lowest": min(values)}
        for name, values in gains.items()
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
        "that has learned from them all. The way of choosing was itself found on the first three sets. The last is",
        "over a DPR of the graph's labels; its dev questions are training questions that were left out.",
        "",
        "`python benchmarks/choice_on_dev.py` makes this page.",
        "",
    ]
    lines += _table(results["sets"], "rows")
    lines += ["", "## How much a rung must gain", ""]
    lines += [
        "In standard errors, by RR@10 or log rank; every gain over the dual-encoder is kept. The default is 1.",
        "",
    ]
    lines += _table(results["sets"], "errors")
    revisions = ", ".join(f"{name} {revision[:7]}" for name, revision in results["revisions"].items())
    return "\n".join([*lines, "", f"Revisions: {revisions}."]) + "\n"


def _table(sets: dict[str, Any], entry: str) -> list[str]:
    """A row for each set and number of dev questions that has this entry."""
    rows = [(name, questions, part) for name, of_set in sets.items() for questions, part in of_set.items()]
    rows = [row for row in rows if entry in row[2]]
    names = list(rows[0][2][entry])
    lines = ["| set | dev questions | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for name, questions, part in rows:
        cells = [f"{one['mean']:.1f} ± {one['error']:.1f} ({one['lowest']:.1f})" for one in part[entry].values()]
        lines.append(f"| {name} | {questions} | " + " | ".join(cells) + " |")
    return lines


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
        if name == OVER_DPR:
            one_set = over_dpr(OneSet.of("docstrings-cut", data, work), work / "choice-on-dev")
        else:
            one_set = OneSet.of(name, data, work)
        judged, steps = judged_of(one_set)
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
