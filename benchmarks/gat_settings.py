"""Edges per question (the paper's figure 3) and attention heads of `--layer gat`, over one frozen MiniLM.

    .venv/bin/python benchmarks/gat_settings.py --data DIRECTORY --work WORK

DIRECTORY holds fairytaleqa in the BEIR layout; the script generates docstrings-cut. A graph joins each training
question to 25 passages; a model uses the first k of them. All other settings are the defaults of `--layer gat`. Epoch
and context scale are chosen on dev, and tables are on test. Each setting is compared with the default one, by
questions' means over the same seeds. Every training is kept in WORK, which may be that of same_labels.py. Writes
results/gat_settings.json, .md and a plot per set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
from result_files import revisions_in_words
from same_labels import SPLITS, OneSet, Values, mean_by_question, tested
from same_labels_page import DUAL, difference
from svg_plot import line_plot

from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index import build_index
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.provenance import library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, open_model, train_gnn

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("docstrings-cut", "fairytaleqa")
EDGES, HEADS = (1, 2, 3, 5, 10, 25), (1, 2)
DEFAULT = {"k": 5, "heads": 1}
CACHED = "values.json"


def settings_of(name: str, value: int) -> dict[str, int]:
    """The default settings with one changed."""
    return {**DEFAULT, name: value}


def place_of(one_set: OneSet, chosen: Mapping[str, int], seed: int) -> Path:
    """Directory of a training."""
    return one_set.place / "gat-settings" / f"k{chosen['k']}-heads{chosen['heads']}-{seed}"


def values_of(one_set: OneSet, graph: Graph, chosen: Mapping[str, int], seed: int) -> dict[str, Values]:
    """RR@10 by split and question of one training, whose model is kept."""
    place = place_of(one_set, chosen, seed)
    kept = place / CACHED
    if kept.is_file() and (cached := json.loads(kept.read_text("utf-8")))["graph"] == graph.hash:
        return dict(cached["values"])
    settings = TrainSettings.parse(
        {"layer": "gat", "seed": seed, "k": chosen["k"], "encoder": {"heads": chosen["heads"]}}
    )
    model = train_gnn(graph, one_set.dataset, one_set.features, settings, place / "model", overwrite=True)
    embeddings = embed_passages(model, graph, place / "embeddings", overwrite=True)
    index = build_index(embeddings, place / "index", overwrite=True)
    values = {split: one_set.values_of(index, split) for split in SPLITS}
    kept.write_text(json.dumps({"graph": graph.hash, "values": values}), encoding="utf-8")
    return values


def figures_of(one_set: OneSet, seeds: int) -> dict[str, Any]:
    """Figures of each number of edges and of heads."""
    graph = build_graph(
        one_set.dataset, one_set.features, GraphSettings(k=max(EDGES)), one_set.place / "graph-wide", overwrite=True
    )
    dual = build_index(one_set.features, one_set.place / "index-dual-encoder", overwrite=True)
    of_dual = {split: fmean(one_set.values_of(dual, split).values()) for split in SPLITS}
    figures: dict[str, Any] = {DUAL: of_dual, "seeds": seeds}
    default = [values_of(one_set, graph, DEFAULT, seed) for seed in range(seeds)]
    models = list[Path]()
    for name, tried in (("k", EDGES), ("heads", HEADS)):
        figures[name] = {}
        for value in tried:
            by_seed = [values_of(one_set, graph, settings_of(name, value), seed) for seed in range(seeds)]
            models += [place_of(one_set, settings_of(name, value), seed) / "model" for seed in range(seeds)]
            on_test = [fmean(values["test"].values()) for values in by_seed]
            figures[name][str(value)] = {
                "dev": fmean(fmean(values["dev"].values()) for values in by_seed),
                "test": fmean(on_test),
                "deviation": stdev(on_test) if seeds > 1 else 0.0,
                "against": None
                if value == DEFAULT[name]
                else tested(*(mean_by_question([values["test"] for values in runs]) for runs in (by_seed, default))),
            }
    return figures | {"revisions": [open_model(model).meta["git_revision"] for model in models]}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    seeds = max(figures["seeds"] for figures in results["sets"].values())
    lines = [
        "# Edges per question and attention heads",
        "",
        "RR@10 × 100 of `gnnretrieval train --layer gat` over one frozen MiniLM, mean ± deviation over",
        f"{seeds} seeds. Each training question has edges to its k first passages and to those it is labelled with.",
        "Δ is to the default (5 edges, 1 head) on test, with a 95 % bootstrap interval and the p of a paired t-test.",
        "`python benchmarks/gat_settings.py --data DIRECTORY --work WORK` makes this page.",
    ]
    for name, figures in results["sets"].items():
        lines += ["", f"## {name}", "", f"![edges per question](gat_settings-{name}.svg)", ""]
        lines += [f"The dual-encoder has {100 * figures[DUAL]['dev']:.1f} on dev and {100 * figures[DUAL]['test']:.1f}"]
        lines[-1] += " on test."
        for setting, title in (("k", "edges per question"), ("heads", "heads")):
            lines += ["", f"| {title} | dev | test | Δ |", "|---:|---:|---:|---:|"]
            for value, row in figures[setting].items():
                shown = f"{100 * row['test']:.1f} ± {100 * row['deviation']:.1f}"
                gain = difference(row["against"]) if row["against"] else "–"
                lines.append(f"| {value} | {100 * row['dev']:.1f} | {shown} | {gain} |")
    revisions = revisions_in_words(one for figures in results["sets"].values() for one in figures["revisions"])
    return "\n".join([*lines, "", f"Trained at revision {revisions}.", ""])


def plot(figures: Mapping[str, Any]) -> str:
    """SVG of RR@10 by edges per question, with the dual-encoder as a line."""
    rows = figures["k"]
    return line_plot(
        "RR@10 by edges per question",
        list(map(int, rows)),
        [100 * row["test"] for row in rows.values()],
        [100 * row["deviation"] for row in rows.values()],
        ("edges per question (k)", "RR@10"),
        {DUAL: 100 * figures[DUAL]["test"]},
    )


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--seeds", default=3, show_default=True, help="How many.")
@click.option("--only", multiple=True, type=click.Choice(SETS), help="Some of the sets.")
def main(data: Path, work: Path, seeds: int, only: tuple[str, ...]) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    path = RESULTS / "gat_settings.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}}
    for name in only or SETS:
        results["sets"][name] = figures_of(OneSet.of(name, data, work), seeds)
        results |= {"versions": library_versions(), "cpus": os.cpu_count()}
        write_json(path, json.loads(json.dumps(results)))
        path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")
        (RESULTS / f"gat_settings-{name}.svg").write_text(plot(results["sets"][name]), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
