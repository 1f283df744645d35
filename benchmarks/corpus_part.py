"""layer = linear on a part of the corpus: what the part costs in quality, and training where memory is too small.

    .venv/bin/python benchmarks/corpus_part.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout. The first table trains on a quarter and on half of the
passages of small sets, with the dual-encoder's 2 best passages of each dev question instead of 50, so that a part is
one. The second trains and embeds a synthetic corpus of MS MARCO's width whose vectors take more memory than this
machine has; its figures are kept in WORK, which is that of same_labels.py. Writes results/corpus_part.json and .md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from result_files import revisions_in_words
from same_labels import OneSet, mean_by_question, tested
from same_labels_page import DUAL, GNN, difference
from store_scale import DIMENSION, make_store, memory

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import open_features
from gnnretrieval.graph.store import open_graph
from gnnretrieval.index import build_index
from gnnretrieval.index.faiss_index import ONE_VECTOR
from gnnretrieval.platform.memory import keep_freed_memory, memory_limit
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, open_model, train_gnn
from gnnretrieval.training.gnn import corpus_part
from gnnretrieval.training.gnn.message_memory import memory_of_messages

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("docstrings-cut", "squad-open", "squad-open-by-passage", "fairytaleqa")
SHARES = (0.25, 0.5)  # of the passages
FEW = 2  # best passages of each dev question
GIB, FIGURES = 2**30, "figures.json"


def figures_of(one_set: OneSet, seeds: int) -> dict[str, Any]:
    """Test figures by share of the passages; all of them are those of same_labels.py."""
    whole = [one_set.values(seed, "linear")["test"] for seed in range(seeds)]
    values = mean_by_question([system[ONE_VECTOR] for system in whole])
    shares: dict[str, Any] = {}
    revisions = list[str]()
    for share in SHARES:
        settings = {"passages": round(share * one_set.graph.num_passages)}
        ranked, seconds, kept = [], [], []
        for seed in range(seeds):
            place = one_set.place / "corpus-part" / f"{share:g}-{seed}"
            begun = time.monotonic()
            parsed = TrainSettings.parse({**settings, "seed": seed})
            model = train_gnn(one_set.graph, one_set.dataset, one_set.features, parsed, place / "model", overwrite=True)
            seconds.append(time.monotonic() - begun)
            embeddings = embed_passages(model, one_set.graph, place / "embeddings", one_vector=True, overwrite=True)
            ranked.append(one_set.values_of(build_index(embeddings, place / "index", overwrite=True)))
            kept.append(model.meta["dev"]["kept"])
            revisions.append(model.meta["git_revision"])
        mean = mean_by_question(ranked)
        shares[f"{share:g}"] = {
            "passages": model.meta["dev"]["passages"],
            "kept": kept,
            "seconds": fmean(seconds),
            "RR@10": fmean(mean.values()),
            "against": tested(mean, values),
        }
    return {
        DUAL: fmean(whole[0][DUAL].values()),
        GNN: fmean(values.values()),
        "passages": one_set.graph.num_passages,
        "shares": shares,
        "seeds": seeds,
        "revisions": revisions,
    }


def at_scale(work: Path, scale: float) -> dict[str, Any]:
    """Seconds and memory of training and embedding a synthetic corpus, each in a fresh process; kept in ``work``."""
    if (work / FIGURES).is_file():
        return dict(json.loads((work / FIGURES).read_text("utf-8")))
    graph = make_store(work, scale, DIMENSION, planted=True, dev=2000)
    for folder in ("model", "embeddings"):
        shutil.rmtree(work / folder, ignore_errors=True)
    figures: dict[str, Any] = {
        "passages": graph.num_passages,
        "queries": graph.num_queries,
        "whole_bytes": memory_of_messages(graph),
        "memory": memory_limit(),
    }
    for stage in ("train", "embed"):
        words = [sys.executable, __file__, "--work", str(work), "--stage", stage]
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        figures[stage] = json.loads(output.splitlines()[-1])
        say(f"{stage}: {figures[stage]}")
    meta = open_model(work / "model").meta
    figures["model"] = {name: meta["dev"][name] for name in ("passages", "kept", "queries")}
    figures["revisions"] = [meta["git_revision"]]
    write_json(work / FIGURES, figures)
    return figures


def stage_of(work: Path, stage: str) -> None:
    """In a fresh process: train or embed, and print seconds and memory."""
    keep_freed_memory()
    graph = open_graph(work / "graph")
    begun = time.monotonic()
    if stage == "train":
        dataset, features = Dataset.open(work / "whole"), open_features(work / "features")
        train_gnn(graph, dataset, features, TrainSettings(), work / "model")
    else:
        embed_passages(open_model(work / "model"), graph, work / "embeddings")
    print(json.dumps({"seconds": time.monotonic() - begun, "own_bytes": memory("RssAnon"), "peak": memory("VmHWM")}))


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    seeds = max(figures["seeds"] for figures in results["sets"].values())
    lines = [
        "# Training on a part of the corpus",
        "",
        "`gnnretrieval train` by its defaults (layer = linear) holds all vectors in memory. Where they do not fit, or",
        "with `--passages`, it trains and chooses on a part of the corpus, without rejection, and embeds all passages.",
        "`python benchmarks/corpus_part.py --data DIRECTORY --work WORK` makes this page.",
        "",
        "## What a part costs",
        "",
        f"RR@10 × 100 on test over frozen MiniLM, mean over {seeds} seeds; Δ is to training on all passages",
        "([same_labels.md](same_labels.md)), with a 95 % bootstrap interval and the p of a paired t-test by question.",
        f"These corpora are small: a part has the dual-encoder's {FEW} best passages of each dev question, where the",
        f"default is {corpus_part.HARD}. It trains on the labels of half as many passages as it has.",
        "",
        "| set | passages | dual-encoder | gnn-encoder | Δ | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, figures in results["sets"].items():
        dual = f"{100 * figures[DUAL]:.1f}"
        lines.append(f"| {name} | all {figures['passages']:,} | {dual} | {100 * figures[GNN]:.1f} | – | – |")
        for row in figures["shares"].values():
            values = f"{dual} | {100 * row['RR@10']:.1f} | {difference(row['against'])}"
            lines.append(f"| {name} | {row['passages']:,} | {values} | {row['seconds']:.0f} |")
    scale = results["scale"]
    revisions = [one for figures in (scale, *results["sets"].values()) for one in figures["revisions"]]
    needed, there = scale["whole_bytes"] / GIB, scale["memory"] / GIB
    lines += [
        "",
        "## Where memory is too small",
        "",
        f"{scale['passages']:,} synthetic passages of {DIMENSION} dimensions and {scale['queries']:,} training "
        "questions. All vectors would need",
        f"{needed:.0f} GiB, and this machine has {there:.0f} GiB and 2 cores, which other programs used too. Training "
        f"took {scale['model']['passages']:,} passages",
        f"and ranked {scale['model']['queries']:,} dev questions among them.",
        "",
        "| stage | minutes | memory at its peak |",
        "|---|---:|---:|",
        *(
            f"| `{stage}` | {scale[stage]['seconds'] / 60:.1f} | {scale[stage]['peak'] / GIB:.1f} GiB |"
            for stage in ("train", "embed")
        ),
        "",
        f"Kept: {scale['model']['kept']}. The vectors are random, so the figures are about cost alone.",
        "",
        f"Trained at revision {revisions_in_words(revisions)}.",
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--only", multiple=True, type=click.Choice(SETS), help="Some of the sets; the others stay on the page.")
@click.option("--seeds", default=3, show_default=True, help="How many.")
@click.option("--scale", default=0.25, show_default=True, help="Of the synthetic corpus; 1 is MS MARCO.")
@click.option("--stage", type=click.Choice(("train", "embed")), hidden=True)
def main(data: Path | None, work: Path, only: tuple[str, ...], seeds: int, scale: float, stage: str | None) -> None:
    """Measure, and write the page."""
    if stage is not None:
        stage_of(work, stage)
        return
    if data is None:
        raise click.UsageError("give --data")
    path = RESULTS / "corpus_part.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}}
    results["scale"] = at_scale(work / f"synthetic-{scale:g}", scale)
    vars(corpus_part)["HARD"], default = FEW, corpus_part.HARD
    for name in only or SETS:
        results["sets"][name] = figures_of(OneSet.of(name, data, work), seeds)
        say(f"{name}: measured")
    results["sets"] = {name: results["sets"][name] for name in SETS if name in results["sets"]}
    vars(corpus_part)["HARD"] = default
    results |= {"versions": library_versions(), "cpus": os.cpu_count()}
    write_json(path, json.loads(json.dumps(results)))
    path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
