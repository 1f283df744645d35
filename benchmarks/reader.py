"""Answers end to end: one small reader over the passages of several retrievers (RocketQA, table 5).

    .venv/bin/python benchmarks/reader.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open in the BEIR layout. The retrievers are those of same_labels.py with seed 0, which keeps what
it makes in the same WORK. The reader is trained once, on a sample of the training questions, by the settings of
``encoder train reader --small`` with :data:`QUICK`: 10 to 20 minutes of one thread. The weight of the retrieval score
is chosen for each retriever on a sample of dev; tables are on a sample of test. After an interruption, the same command
continues. Writes results/reader.json and .md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from late_interaction import sample
from same_labels import OneSet, tested
from same_labels_page import BM25_PLAIN, DUAL, GNN, difference

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, read_run, write_run
from gnnretrieval.encoders.reader import Reader, Reading
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.evaluation import (
    answer_values,
    answered_queries,
    choose_weight,
    find_answers,
    parse_measures,
    per_query,
)
from gnnretrieval.index.answering import ReadPassages, read_passages
from gnnretrieval.mining import mine_negatives
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.encoder_recipe import read_encoder_recipe
from gnnretrieval.recipes.hybrid import WITH, WITHOUT
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training.encoder.train_reader import train_reader

RESULTS = Path(__file__).resolve().parent / "results"
SQUAD = "squad-open"
SAMPLE = {"train": 1200, "dev": 60, "test": 300}  # questions
ALL = 10**9  # passages of the sample: all that there are
QUICK = {"epochs": 1, "batch_size": 4, "negatives": 0, "dev_queries": 40, "dev_passages": 2}
PASSAGES = 3  # read for a question
SYSTEMS = (BM25_PLAIN, DUAL, GNN, WITHOUT, WITH)
GOLD = "relevant passage"  # the reader's own limit
TESTS = ((DUAL, BM25_PLAIN), (GNN, DUAL), (GNN, BM25_PLAIN), (WITHOUT, BM25_PLAIN), (WITH, WITHOUT))
MEASURES = ("RR@10", "Answer@3")

Runs = dict[str, dict[str, Run]]  # by split and system


def trained(dataset: Dataset, place: Path) -> Artifact:
    """The reader, and the processor seconds of its training in a file beside it."""
    recipe = read_encoder_recipe("reader")
    negatives, of_dev, stage = recipe.stages
    common: dict[str, Any] = {"overwrite": True}
    examples, dev = (
        mine_negatives(dataset, recipe.settings_of(part, True), place / part.name, **common)
        for part in (negatives, of_dev)
    )
    settings, start = recipe.settings_of(stage, True, **QUICK), recipe.encoder_settings(True).checkpoint
    begun = time.process_time()
    reader = train_reader(dataset, examples, dev, start, settings, place / "reader", **common)
    timed = place / "seconds"
    if not timed.is_file():
        timed.write_text(str(time.process_time() - begun), encoding="utf-8")
    return reader


def rankings(dataset: Dataset, data: Path, work: Path, place: Path) -> Runs:
    """The best passages of each system for the sampled questions of dev and test."""
    files = {split: {name: place / f"{split}-{number}.run" for number, name in enumerate(SYSTEMS)} for split in SAMPLE}
    del files["train"]
    if not all(file.is_file() for of_split in files.values() for file in of_split.values()):
        runs, _ = OneSet.of(SQUAD, data, work).runs(0, "linear")
        for split, of_split in files.items():
            queries = dataset.query_ids_of(split)
            for name, file in of_split.items():
                write_run(file, {query: runs[split][name][query] for query in queries}, "run")
    return {split: {name: read_run(file) for name, file in of_split.items()} for split, of_split in files.items()}


def readings(reader: Reader, dataset: Dataset, split: str, runs: Mapping[str, Run], kept: Path) -> dict[str, Any]:
    """What the reader finds for each question of a split in the passages of all systems: reading by passage."""
    if kept.is_file() and (record := json.loads(kept.read_text("utf-8")))["reader"] == reader.hash:
        return dict(record["readings"])
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    joined: Run = {}
    for query, judged in dataset.split(split).items():
        ids = dict.fromkeys(
            [*judged, *(passage.passage_id for run in runs.values() for passage in run[query][:PASSAGES])]
        )
        joined[query] = [ScoredPassage(id_, 0.0) for id_ in ids]
    by_query = {
        query: {passage.id: reading for passage, reading in zip(answer.passages, answer.readings, strict=True)}
        for query, answer in read_passages(reader, dataset, queries, joined).items()
    }
    kept.write_text(json.dumps({"reader": reader.hash, "readings": by_query}), encoding="utf-8")
    return by_query


def read_of(run: Run, readings: Mapping[str, Any], texts: Mapping[str, Any]) -> dict[str, ReadPassages]:
    """What the reader finds in the first passages of a run."""
    return {
        query: ReadPassages(
            [texts[scored.passage_id] for scored in ranking[:PASSAGES]],
            [scored.score for scored in ranking[:PASSAGES]],
            [Reading(*readings[query][scored.passage_id]) for scored in ranking[:PASSAGES]],
        )
        for query, ranking in run.items()
    }


def measured(dataset: Dataset, runs: Runs, readings: Mapping[str, Any]) -> dict[str, Any]:
    """EM and F1 of each system on test with the weight that dev chose, and paired tests."""
    answers = {split: answered_queries(dataset, split) for split in runs}
    judged = {split: dataset.split(split) for split in runs}
    for split, of_split in runs.items():
        of_split[GOLD] = {q: [ScoredPassage(id_, 1.0) for id_ in sorted(of)] for q, of in judged[split].items()}
    used = {id_ for of_split in readings.values() for of in of_split.values() for id_ in of}
    texts = {passage.id: passage for passage in dataset.passages() if passage.id in used}
    measures = parse_measures(MEASURES)
    hits = find_answers(dataset, runs["test"].values(), measures, list(judged["test"]))
    systems, values = {}, {}
    for name in (*SYSTEMS, GOLD):
        chosen = choose_weight(read_of(runs["dev"][name], readings["dev"], texts), answers["dev"])
        read = read_of(runs["test"][name], readings["test"], texts)
        values[name] = answer_values(
            {query: passages.answer(chosen.weight) for query, passages in read.items()}, answers["test"]
        )
        unweighted = answer_values({query: passages.answer(0.0) for query, passages in read.items()}, answers["test"])
        retrieval = per_query(judged["test"], runs["test"][name], measures, hits)
        systems[name] = {
            **{measure: fmean(of_query.values()) for measure, of_query in (*retrieval.items(), *values[name].items())},
            "EM without weight": fmean(unweighted["EM"].values()),
            "weight": chosen.weight,
            "dev": chosen.measures[chosen.weight],
        }
    tests = [
        {"system": first, "baseline": second, **{m: tested(values[first][m], values[second][m]) for m in ("EM", "F1")}}
        for first, second in TESTS
    ]
    return {"systems": systems, "tests": tests}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    training, sizes = results["reader"], results["questions"]
    lines = [
        "# Answers end to end",
        "",
        "One reader over the passages of several retrievers. **The reader is small**: MiniLM (6 layers), trained on",
        f"{training['questions']:,} questions of squad-open for one epoch, each with its relevant passage alone, in",
        f"{training['minutes']:.0f} minutes of processor time. The papers' readers are BERT base, trained on all of "
        "NQ:",
        "compare the rows here with each other, not with theirs.",
        "",
        f"EM and F1 × 100 on {sizes['test']:,} test questions, of whose passages the first {PASSAGES} are read. The",
        f"weight of the retrieval score is chosen for each retriever on {sizes['dev']:,} dev questions; EM at weight 0",
        "is beside it. The retrievers are those of [same_labels.md](same_labels.md) with seed 0, over 7,731 passages.",
        "",
        "`.venv/bin/python benchmarks/reader.py --data DIRECTORY --work WORK` makes this page.",
        "",
        "| passages by | RR@10 | Answer@3 | EM | F1 | weight | EM at weight 0 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in results["systems"].items():
        figures = [f"{100 * row[key]:.1f}" for key in ("RR@10", "Answer@3", "EM", "F1")]
        lines.append(
            f"| {name} | " + " | ".join(figures) + f" | {row['weight']:g} | {100 * row['EM without weight']:.1f} |"
        )
    lines += ["", f"`{GOLD}`: the reader is given only the labelled passage, which shows its own limit."]
    lines += ["", "| difference | EM | F1 |", "|---|---:|---:|"]
    for test in results["tests"]:
        lines.append(f"| {test['system']} − {test['baseline']} | {difference(test['EM'])} | {difference(test['F1'])} |")
    lines += [
        "",
        "With a 95 % bootstrap interval and the p of a paired t-test by question, not corrected for five tests.",
    ]
    return "\n".join([*lines, "", f"Revision {results['git_revision'][:7]}.", ""])


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Directory that holds squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
def main(data: Path, work: Path) -> None:
    """Train, read, measure, and write the page."""
    keep_freed_memory()
    place = work / "reader"
    if not (place / "dataset" / "corpus.jsonl").is_file():
        sample(data / SQUAD, place / "dataset", SAMPLE, ALL)
    dataset = Dataset.open(place / "dataset")
    artifact = trained(dataset, place)
    runs = rankings(dataset, data, work, place)
    reader = Reader(ReaderSettings(reader=str(artifact.path), passages=PASSAGES * len(SYSTEMS) + 1))
    by_split = {
        split: readings(reader, dataset, split, of_split, place / f"{split}.json") for split, of_split in runs.items()
    }
    results = measured(dataset, runs, by_split)
    for name, row in results["systems"].items():
        say(f"{name}: dev EM {100 * row['dev']['EM']:.1f}, weight {row['weight']:g}")
    minutes = float((place / "seconds").read_text("utf-8")) / 60
    results |= {
        "questions": {split: len(dataset.query_ids_of(split)) for split in runs},
        "reader": {
            "questions": artifact.meta["examples"]["queries"],
            "minutes": minutes,
            "dev": artifact.meta["dev"],
            "settings": artifact.config["train"],
        },
        "dataset": dataset.provenance(),
        "git_revision": git_revision(),
        "versions": library_versions(),
        "cpus": os.cpu_count(),
    }
    write_json(RESULTS / "reader.json", results)
    (RESULTS / "reader.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
