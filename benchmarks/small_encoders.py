"""DPR, RetroMAE, Condenser, RocketQAv2 and SPLADE on a small sample of squad-open, beside the GNN-encoder.

    .venv/bin/python benchmarks/small_encoders.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open in the BEIR layout. The sample is that of ``late_interaction.py --quick``. Every recipe is
run as ``encoder train RECIPE --small`` runs it, but with shorter passages and less training of cross-encoders; the page
says so. Everything is trained on the same labels; the tables are of test. After an interruption, the same command
continues. Writes results/small_encoders.json and .md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
from late_interaction import DEPTH, QUICK_TOKENS, RECALL, RESULTS, RR, SQUAD, OneSet, Values
from same_labels import mean_by_question, tested
from same_labels_page import difference

from gnnretrieval.data.runs.trec import Run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.sparse_features import open_sparse_features
from gnnretrieval.evaluation import choose_fusion
from gnnretrieval.index.fuse import fuse
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.index.sparse_search import sparse_run
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.encoder_recipe import METHODS
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

SYSTEMS = {
    "dpr": ["dpr"],
    "retromae": ["retromae"],
    "cocondenser": ["condenser", "cocondenser"],
    "splade-distilled": ["splade", "splade-distilled"],
    "term-weights": ["term-weights"],
    "rocketqav2": ["step-1", "rocketqav2"],
}
PRETRAINED = ("retromae", "condenser", "cocondenser")
SPARSE = ("splade", "splade-distilled", "term-weights")
NAMES = {
    "bm25": "BM25",
    "start": "dual-encoder (untuned MiniLM)",
    "gnn-encoder": "GNN-encoder over it",
    "dpr": "DPR",
    "retromae": "RetroMAE on the passages, then DPR",
    "condenser": "Condenser on the passages, then DPR",
    "cocondenser": "Condenser and coCondenser on the passages, then DPR",
    "step-1": "RocketQA, step 1 (in-batch negatives)",
    "rocketqav2": "RocketQAv2, from step 1",
    "splade": "SPLADE",
    "splade-distilled": "SPLADE, then distilled from a cross-encoder",
    "term-weights": "term weights: SPLADE without expansion",
    "gnn-encoder + splade": "GNN-encoder and SPLADE, by weights chosen on dev",
    "gnn-encoder + splade-distilled": "GNN-encoder and distilled SPLADE, likewise",
    "gnn-encoder + term-weights": "GNN-encoder and term weights, likewise",
    "gnn-encoder + bm25": "GNN-encoder and BM25, likewise",
}
JUDGE = {"epochs": 1, "negatives": 2, "dev_queries": 40}  # shorter training of a cross-encoder
JOINT = "epochs = 1, batch_size = 16, hard_negatives = 2"


def recipe_of(name: str, seed: int, place: Path) -> Path:
    """The recipe, with a seed and the shorter training, as a file."""
    text = (METHODS / f"{name}.toml").read_text("utf-8")
    text = re.sub(r"(?s)(\[small\.encoder\].*?max_tokens = )\d+", rf"\g<1>{QUICK_TOKENS}", text)
    seeded = {"train": {"dev_queries": 80, "dev_passages": 200}, "pre_train": {}, "cross_encoder": JUDGE}
    for section, values in seeded.items():
        head, title, rest = text.partition(f"[small.{section}]\n")
        if title:
            body, bracket, after = rest.partition("\n[")
            kept = [line for line in body.split("\n") if line.split(" = ")[0] not in values]
            given = [f"{key} = {value}" for key, value in {**values, "seed": seed}.items()]
            text = "\n".join([head + title + "\n".join(given), *kept]) + bracket + after
    text = re.sub(r"small = \{ epochs = \d+, batch_size = \d+, hard_negatives = \d+", f"small = {{ {JOINT}", text)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def figures_of(one_set: OneSet, seeds: int) -> dict[str, Any]:
    """Values by system and seed, tests, and bytes a passage."""
    features, graph, dual = one_set.frozen()
    test, dev = list(one_set.texts), list(one_set.dataset.split("dev"))
    values: dict[str, list[Values]] = {}
    bytes_of, passages = dict[str, float](), len(one_set.dataset.passage_ids)
    chosen: dict[str, list[tuple[float, ...]]] = {}
    bm25 = BM25((passage.full_text for passage in one_set.dataset.passages()), total=passages)
    by_bm25 = bm25_run(
        bm25, {query.id: query.text for query in one_set.dataset.queries_of("dev")}, one_set.dataset.passage_ids, DEPTH
    )
    for seed in range(seeds):
        index = one_set.gnn(features, graph, "", seed)

        def by_index(queries: list[str], index: Any = index) -> Run:
            return index_run(index, queries, features.queries[features.rows_of(queries)], DEPTH)

        runs: dict[str, Run] = {"gnn-encoder": by_index(test)}
        beside = {"bm25": by_bm25}
        for name, systems in SYSTEMS.items():
            place = one_set.place / f"{name}-run-{seed}"
            recipe_run = run_encoder_recipe(
                recipe_of(name, seed, place), place / "made", data=one_set.dataset.path, small=True
            )
            assert recipe_run is not None
            runs |= {system: recipe_run.runs[system] for system in (*systems, "bm25", "start") if system not in runs}
            for system in (system for system in systems if system in SPARSE):
                sparse = open_sparse_features(place / "made" / f"{system}-features")
                beside[system] = sparse_run(sparse, dev, DEPTH)
                bytes_of[system] = 8 * sparse.meta["num_passage_terms"] / passages
        for name, on_dev in beside.items():
            fusion = choose_fusion([by_index(dev), on_dev], one_set.dataset.split("dev"))
            joined = fuse([by_index(test), runs[name]], "weighted", weights=fusion.weights)
            runs[f"gnn-encoder + {name}"] = joined
            chosen.setdefault(name, []).append(fusion.weights)
        for name, run in runs.items():
            values.setdefault(name, []).append(one_set.measured(run))
            say(f"{one_set.name}, seed {seed}, {name}: {100 * fmean(values[name][-1][RR].values()):.1f}")
    one_vector = ("start", "gnn-encoder", *PRETRAINED, "dpr", "step-1", "rocketqav2")
    dense = dict.fromkeys(one_vector, dual.meta["bytes"] / passages)
    bytes_of |= dense | {f"gnn-encoder + {name}": dense["gnn-encoder"] + bytes_of[name] for name in SPARSE}
    means = {name: mean_by_question([measures[RR] for measures in every]) for name, every in values.items()}
    pairs = {**dict.fromkeys(PRETRAINED, "dpr"), "rocketqav2": "step-1", "splade-distilled": "splade"}
    return {
        "passages": passages,
        "questions": len(test),
        "labels": len(one_set.dataset.split("train")),
        "seeds": seeds,
        "weights": chosen,
        "systems": {name: row_of(name, values[name], means, bytes_of) for name in NAMES},
        "pairs": {name: {"than": other, **tested(means[name], means[other])} for name, other in pairs.items()},
    }


def row_of(
    name: str, seeds: Sequence[Values], means: Mapping[str, dict[str, float]], bytes_of: Mapping[str, float]
) -> dict[str, Any]:
    """A system's means over seeds, its bytes, and its test against the GNN-encoder."""
    by_seed = [100 * fmean(measures[RR].values()) for measures in seeds]
    row: dict[str, Any] = {
        "RR@10": fmean(by_seed),
        "deviation": stdev(by_seed) if len(set(by_seed)) > 1 else None,
        "R@100": 100 * fmean(mean_by_question([measures[RECALL] for measures in seeds]).values()),
        "bytes": bytes_of.get(name),
    }
    if name != "gnn-encoder":
        row["test"] = tested(means[name], means["gnn-encoder"])
    return row


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    figures = results["set"]
    lines = [
        "# Pre-training, joint training and learned sparse retrieval",
        "",
        f"A sample of squad-open: {figures['passages']:,} passages, {figures['labels']:,} training and",
        f"{figures['questions']:,} test questions; seeds: {figures['seeds']}. All start from MiniLM and see the same "
        "labels.",
        f"The recipes are those of `encoder train NAME --small`, with {QUICK_TOKENS} tokens of a passage;",
        "cross-encoders are trained for one epoch with two negatives. An encoder that is no better on dev after",
        "training keeps the weights that it started from: RocketQAv2 is then its step 1, and distilled SPLADE is",
        "SPLADE. MiniLM has no head for masked language modelling. SPLADE's is trained on these passages alone, where",
        "published SPLADE models start from one that is trained on billions of words.",
        "",
        "RR@10 and R@100 × 100 on test, means over seeds. Δ is the difference in RR@10 from the GNN-encoder, with a",
        "95 % bootstrap interval and the p of a paired t-test by question. Bytes are those of a passage in the index.",
        "",
        "`.venv/bin/python benchmarks/small_encoders.py --data DIRECTORY --work WORK` makes this page.",
        "",
        "| system | RR@10 | R@100 | bytes | Δ |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in figures["systems"].items():
        deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
        size = "–" if row["bytes"] is None else f"{row['bytes']:,.0f}"
        gain = "–" if "test" not in row else difference(row["test"])
        lines.append(f"| {NAMES[name]} | {row['RR@10']:.1f}{deviation} | {row['R@100']:.1f} | {size} | {gain} |")
    lines.append("")
    for name, test in figures["pairs"].items():
        lines.append(f"{NAMES[name]}, against {NAMES[test['than']]}: {difference(test)}.")
    weights = [
        f"{NAMES[other]} {', '.join(f'{second:g}' for _, second in pairs)}"
        for other, pairs in figures["weights"].items()
    ]
    lines += ["", f"Weights beside the GNN-encoder, by seed: {'; '.join(weights)}."]
    lines += ["", f"Revision {results['git_revision']}."]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Directory that holds squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--seeds", default=3, show_default=True, help="How many.")
def main(data: Path, work: Path, seeds: int) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    results: dict[str, Any] = {"set": figures_of(OneSet.of(SQUAD, data, work, True), seeds)}
    results |= {"git_revision": git_revision(), "versions": library_versions(), "cpus": os.cpu_count()}
    write_json(RESULTS / "small_encoders.json", results)
    (RESULTS / "small_encoders.md").write_text(markdown(json.loads(json.dumps(results))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
