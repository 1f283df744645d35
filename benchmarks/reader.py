"""Answers end to end: one small reader over the passages of several retrievers (RocketQA, table 5).

    .venv/bin/python benchmarks/reader.py --data DIRECTORY --work WORK --small SMALL

DIRECTORY holds squad-open in the BEIR layout. The retrievers are those of same_labels.py with seed 0, which keeps what
it makes in the same WORK; and, over a small sample, the papers' encoders, whose rankings small_encoders.py keeps in its
WORK, here SMALL. The reader is trained once, on a sample of the training questions, by the settings of ``encoder train
reader --small`` with :data:`QUICK`: 10 to 20 minutes of one thread. The weight of the retrieval score is chosen for
each retriever on dev; tables are on test. After an interruption, the same command continues. Writes results/reader.json
and .md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from late_interaction import sample
from same_labels import OneSet, mean_by_question, tested
from same_labels_page import BM25_PLAIN, DUAL, GNN, difference
from small_encoders_page import NAMES

from gnnretrieval.data import Dataset
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, read_run, write_run
from gnnretrieval.encoders.reader import Reader, Reading
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.evaluation import (
    answer_values,
    answered_queries,
    choose_fusion,
    choose_weight,
    find_answers,
    parse_measures,
    per_query,
)
from gnnretrieval.evaluation.reading import WeightChoice
from gnnretrieval.index.answering import ReadPassages, read_passages
from gnnretrieval.index.fuse import fuse
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
MOST = 200  # more than all systems together retrieve for a question
SYSTEMS = (BM25_PLAIN, DUAL, GNN, WITHOUT, WITH)
GOLD = "relevant passage"  # the reader's own limit
TESTS = ((DUAL, BM25_PLAIN), (GNN, DUAL), (GNN, BM25_PLAIN), (WITHOUT, BM25_PLAIN), (WITH, WITHOUT))
ENCODERS = ("bm25", "start", "dpr", "step-4", "rocketqav2", "pair", "dcsr", "gnn-encoder", "gnn-encoder + bm25")
ENCODER_TESTS = (
    *((name, "start") for name in ENCODERS[2:8]),
    *(("gnn-encoder", name) for name in ENCODERS[2:7]),
    ("gnn-encoder + bm25", "bm25"),
)
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


def small_rankings(place: Path) -> list[Runs]:
    """The rankings that small_encoders.py kept, by seed; and the GNN-encoder joined with BM25 as it joins them."""
    seeds: list[Runs] = []
    while (kept := place / f"rankings-{len(seeds)}").is_dir():
        alone = [name for name in ENCODERS if " + " not in name]
        runs = {split: {name: read_run(kept / split / f"{name}.run") for name in alone} for split in ("dev", "test")}
        judged = Dataset.open(place.parent / "datasets" / place.name).split("dev")
        weights = choose_fusion([runs["dev"]["gnn-encoder"], runs["dev"]["bm25"]], judged).weights
        for of_split in runs.values():
            both = [of_split["gnn-encoder"], of_split["bm25"]]
            of_split["gnn-encoder + bm25"] = fuse(both, "weighted", weights=weights)
        seeds.append(runs)
    return seeds


def readings(reader: Reader, dataset: Dataset, split: str, runs: Sequence[Run], kept: Path) -> dict[str, Any]:
    """What the reader finds for each question of a split in the passages of all runs: reading by passage."""
    queries = {query.id: query.text for query in dataset.queries_of(split)}
    joined: Run = {}
    for query, judged in dataset.split(split).items():
        ids = dict.fromkeys(
            [*judged, *(passage.passage_id for run in runs for passage in run.get(query, [])[:PASSAGES])]
        )
        joined[query] = [ScoredPassage(id_, 0.0) for id_ in ids]
    record: dict[str, Any] = json.loads(kept.read_text("utf-8")) if kept.is_file() else {"reader": None}
    if record["reader"] == reader.hash and all(
        scored.passage_id in record["readings"].get(query, {}) for query, of in joined.items() for scored in of
    ):
        return dict(record["readings"])
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
        if ranking
    }


def measured(
    dataset: Dataset,
    seeds: Sequence[Runs],
    readings: Mapping[str, Any],
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """EM and F1 of each system on test with the weight that dev chose, and paired tests; means over seeds."""
    answers = {split: answered_queries(dataset, split) for split in ("dev", "test")}
    judged = {split: dataset.split(split) for split in answers}
    gold: dict[str, Run] = {
        split: {query: [ScoredPassage(id_, 1.0) for id_ in sorted(of)] for query, of in of_split.items()}
        for split, of_split in judged.items()
    }
    used = {id_ for of_split in readings.values() for of in of_split.values() for id_ in of}
    texts = {passage.id: passage for passage in dataset.passages() if passage.id in used}
    measures = parse_measures(MEASURES)

    def of_seed(runs: Mapping[str, Run]) -> tuple[dict[str, dict[str, float]], WeightChoice]:
        read = {split: read_of(run, readings[split], texts) for split, run in runs.items()}
        chosen = choose_weight(read["dev"], answers["dev"])
        by_weight = [
            answer_values({query: of.answer(weight) for query, of in read["test"].items()}, answers["test"])
            for weight in (chosen.weight, 0.0)
        ]
        hits = find_answers(dataset, [runs["test"]], measures, list(judged["test"]))
        found = per_query(judged["test"], runs["test"], measures, hits)
        retrieval = {measure: dict(of) for measure, of in found.items()}
        return {**retrieval, **by_weight[0], "EM without weight": by_weight[1]["EM"]}, chosen

    systems: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, dict[str, float]]] = {}  # by system, measure and question
    for name in (*names, GOLD):
        runs = [gold] if name == GOLD else [{split: of[split][name] for split in judged} for of in seeds]
        by_seed = [of_seed(of) for of in runs]
        values[name] = {m: mean_by_question([of[m] for of, _ in by_seed]) for m in by_seed[0][0]}
        systems[name] = {
            **{measure: fmean(of_query.values()) for measure, of_query in values[name].items()},
            "weights": [chosen.weight for _, chosen in by_seed],
            "dev": fmean(chosen.measures[chosen.weight]["EM"] for _, chosen in by_seed),
        }
    tests = [
        {"system": first, "baseline": second, **{m: tested(values[first][m], values[second][m]) for m in ("EM", "F1")}}
        for first, second in pairs
    ]
    return {"systems": systems, "tests": tests, "questions": {split: len(of) for split, of in judged.items()}}


def answered(
    reader: Reader,
    dataset: Dataset,
    seeds: Sequence[Runs],
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    place: Path,
) -> dict[str, Any]:
    """Read what the systems retrieve of a dataset, and measure."""
    place.mkdir(parents=True, exist_ok=True)
    by_split = {
        split: readings(reader, dataset, split, [runs[split][name] for runs in seeds for name in names], place / file)
        for split, file in (("dev", "dev.json"), ("test", "test.json"))
    }
    figures = measured(dataset, seeds, by_split, names, pairs)
    for name, row in figures["systems"].items():
        say(f"{name}: dev EM {100 * row['dev']:.1f}, weights {row['weights']}")
    return {**figures, "passages": len(dataset.passage_ids), "dataset": dataset.provenance()}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    training, whole, small = results["reader"], results["whole"], results["small"]
    seeds = len(small["systems"][GNN]["weights"])
    lines = [
        "# Answers end to end",
        "",
        "One reader over the passages of several retrievers. **The reader is small**: MiniLM (6 layers), trained on",
        f"{training['questions']:,} questions of squad-open for one epoch, each with its relevant passage alone, in",
        f"{training['minutes']:.0f} minutes of processor time. The papers' readers are BERT base, trained on all of "
        "NQ:",
        "compare the rows here with each other, not with theirs.",
        "",
        f"EM and F1 × 100. The first {PASSAGES} passages of a question are read. The weight of the retrieval score is",
        f"chosen for each retriever on dev; EM at weight 0 is beside it. `{GOLD}`: the reader is given only the",
        "labelled passage, which shows its own limit. Differences have a 95 % bootstrap interval and the p of a paired",
        "t-test by question, not corrected for the number of tests.",
        "",
        "`.venv/bin/python benchmarks/reader.py --data DIRECTORY --work WORK --small SMALL` makes this page.",
        "",
        "## The systems of the same labels",
        "",
        "The retrievers are those of [same_labels.md](same_labels.md) with seed 0, over "
        f"{whole['passages']:,} passages.",
        f"{whole['questions']['dev']:,} dev and {whole['questions']['test']:,} test questions.",
        "",
        *_tables(whole, {}),
        "",
        "## The papers' encoders",
        "",
        "The retrievers are those of [small_encoders.md](small_encoders.md), on its sample of "
        f"{small['passages']:,} passages.",
        f"{small['questions']['dev']:,} dev and {small['questions']['test']:,} test questions, means over {seeds} "
        "seeds.",
        "",
        *_tables(small, NAMES),
        "",
        f"Revision {results['git_revision'][:7]}.",
        "",
    ]
    return "\n".join(lines)


def _tables(figures: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    lines = [
        "| passages by | RR@10 | Answer@3 | EM | F1 | weight | EM at weight 0 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in figures["systems"].items():
        cells = [f"{100 * row[key]:.1f}" for key in ("RR@10", "Answer@3", "EM", "F1")]
        weights = ", ".join(f"{weight:g}" for weight in row["weights"])
        cells += [weights, f"{100 * row['EM without weight']:.1f}"]
        lines.append(f"| {names.get(name, name)} | {' | '.join(cells)} |")
    lines += ["", "| difference | EM | F1 |", "|---|---:|---:|"]
    for test in figures["tests"]:
        first, second = (names.get(test[key], test[key]) for key in ("system", "baseline"))
        lines.append(f"| {first} − {second} | {difference(test['EM'])} | {difference(test['F1'])} |")
    return lines


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Directory that holds squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--small", type=click.Path(path_type=Path), required=True, help="The --work of small_encoders.py.")
def main(data: Path, work: Path, small: Path) -> None:
    """Train, read, measure, and write the page."""
    keep_freed_memory()
    place = work / "reader"
    if not (place / "dataset" / "corpus.jsonl").is_file():
        sample(data / SQUAD, place / "dataset", SAMPLE, ALL)
    dataset = Dataset.open(place / "dataset")
    artifact = trained(dataset, place)
    reader = Reader(ReaderSettings(reader=str(artifact.path), passages=MOST))
    of_small = Dataset.open(small / "datasets" / f"{SQUAD}-quick")
    results = {
        "whole": answered(reader, dataset, [rankings(dataset, data, work, place)], SYSTEMS, TESTS, place),
        "small": answered(
            reader, of_small, small_rankings(small / f"{SQUAD}-quick"), ENCODERS, ENCODER_TESTS, place / "small"
        ),
        "reader": {
            "questions": artifact.meta["examples"]["queries"],
            "minutes": float((place / "seconds").read_text("utf-8")) / 60,
            "dev": artifact.meta["dev"],
            "settings": artifact.config["train"],
        },
        "git_revision": git_revision(),
        "versions": library_versions(),
        "cpus": os.cpu_count(),
    }
    write_json(RESULTS / "reader.json", results)
    (RESULTS / "reader.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
