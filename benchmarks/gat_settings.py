"""Edges per question (the paper's figure 3), attention heads and edge features of ``--layer gat``, over one MiniLM.

    .venv/bin/python benchmarks/gat_settings.py --data DIRECTORY --work WORK

DIRECTORY holds fairytaleqa in the BEIR layout; the script generates docstrings-cut. All other settings are the defaults
of ``--layer gat``. A graph is built for each number of edges: label edges are a question's last, and its first edges in
a wider graph would lack them. The cross-encoder is trained first, on docstrings-cut, from MiniLM by the settings of
encoders.toml; narrower forms of its [CLS] vectors are made from these. Epoch and context scale are chosen on dev, and
tables are on test. Each setting is compared with the default one, by questions' means over the same seeds. Every
training is kept in WORK, which may be that of same_labels.py. Writes results/gat_settings.json, .md and a plot per set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
from result_files import revisions_in_words
from same_labels import SPLITS, OneSet, deviation, mean_by_question, tested
from same_labels_page import DUAL, difference
from svg_plot import line_plot

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index import build_index
from gnnretrieval.mining.negatives import NegativeSettings, mine_negatives
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.encoder.settings import CrossEncoderTrainSettings
from gnnretrieval.training.encoder.train_cross_encoder import train_cross_encoder

RESULTS = Path(__file__).resolve().parent / "results"
EDGES, HEADS, FEATURES = "edges per question", "heads", "edge features"
TABLES = {"docstrings-cut": (EDGES, HEADS, FEATURES), "fairytaleqa": (EDGES, HEADS)}
CANDIDATES = 20  # passages of a question that the cross-encoder learns from
PAIR_TOKENS = 160
CROSS_ENCODER = CrossEncoderTrainSettings(
    loss="listwise", epochs=2, batch_size=8, negatives=5, learning_rate=1e-4, max_tokens=PAIR_TOKENS, dropout=0.0
)


class Setting(NamedTuple):
    """A row of a table: its directory, and how it differs from the default graph and GNN."""

    place: str
    graph: Mapping[str, Any] = {}
    gnn: Mapping[str, Any] = {}


DEFAULT = Setting("default")
CLS = Setting("cls", {"edge_vectors": "cross-encoder"})
PROBABILITY = Setting("probability", {"edge_features": (*GraphSettings().edge_features, "probability")})
SETTINGS: dict[str, dict[str, Setting]] = {
    EDGES: {str(k): DEFAULT if k == GraphSettings().k else Setting(f"k{k}", {"k": k}) for k in (1, 2, 3, 5, 10, 25)},
    HEADS: {"1": DEFAULT, "2": Setting("heads2", gnn={"heads": 2})},
    FEATURES: {
        "cheap": DEFAULT,
        "and the cross-encoder's probability": PROBABILITY,
        "and its [CLS] vector": CLS,
        "the same as int8": Setting("cls-int8", {"edge_vectors": "file", "edge_form": "int8"}),
        "64 dimensions of it (PCA)": Setting("cls-64", {"edge_vectors": "file", "edge_dimensions": 64}),
        "16 dimensions of it (PCA), int8": Setting(
            "cls-16-int8", {"edge_vectors": "file", "edge_dimensions": 16, "edge_form": "int8"}
        ),
    },
}


def cross_encoder_of(one_set: OneSet) -> Artifact:
    """A cross-encoder of the set's labels and the frozen encoder's first passages (RocketQA, step 2)."""
    place = one_set.place / "cross-encoder"
    train, dev = (
        mine_negatives(
            one_set.dataset,
            NegativeSettings(top_k=CANDIDATES, split=split),
            place / f"{split}-negatives",
            features=one_set.features,
            overwrite=True,
        )
        for split in ("train", "dev")
    )
    start = EncoderSettings().checkpoint
    return train_cross_encoder(one_set.dataset, train, dev, start, CROSS_ENCODER, place / "model", overwrite=True)


def graph_of(one_set: OneSet, setting: Setting) -> Graph:
    """The graph of a row."""
    if not setting.graph:
        return one_set.graph
    changes, file = dict(setting.graph), None
    if setting in (CLS, PROBABILITY):
        changes |= {"cross_encoder": str(cross_encoder_of(one_set).path), "pair_tokens": PAIR_TOKENS}
    elif changes.get("edge_vectors") == "file":
        file = graph_of(one_set, CLS).path / "edge_vectors.npy"
    place = one_set.place / "gat-settings" / setting.place / "graph"
    settings = GraphSettings.parse(changes)
    return build_graph(one_set.dataset, one_set.features, settings, place, edge_file=file, overwrite=True)


def values_of(one_set: OneSet, graph: Graph, setting: Setting, seed: int) -> dict[str, Any]:
    """RR@10 by split and question of one training, as ``values``, and the package's ``revision``."""
    place = one_set.place / "gat-settings" / setting.place
    kept = place / f"{seed}.json"
    if kept.is_file() and (record := json.loads(kept.read_text("utf-8")))["graph"] == graph.hash:
        return dict(record)
    record = {"graph": graph.hash, "revision": git_revision()}
    settings = TrainSettings.parse({"layer": "gat", "seed": seed, "encoder": dict(setting.gnn)})
    model = train_gnn(graph, one_set.dataset, one_set.features, settings, place / f"model-{seed}", overwrite=True)
    embeddings = embed_passages(model, graph, place / f"embeddings-{seed}", overwrite=True)
    index = build_index(embeddings, place / f"index-{seed}", overwrite=True)
    record["values"] = {split: one_set.values_of(index, split) for split in SPLITS}
    write_json(kept, record)
    return record


def figures_of(one_set: OneSet, seeds: int) -> dict[str, Any]:
    """Figures of each table's rows."""
    dual = build_index(one_set.features, one_set.place / "index-dual-encoder", overwrite=True)
    of_dual = {split: fmean(one_set.values_of(dual, split).values()) for split in SPLITS}
    figures: dict[str, Any] = {DUAL: of_dual, "seeds": seeds, "tables": {}}
    default = mean_by_question(
        [values_of(one_set, one_set.graph, DEFAULT, seed)["values"]["test"] for seed in range(seeds)]
    )
    revisions = list[str]()
    for table in TABLES[one_set.name]:
        rows = figures["tables"].setdefault(table, {})
        for name, setting in SETTINGS[table].items():
            graph = graph_of(one_set, setting)
            records = [values_of(one_set, graph, setting, seed) for seed in range(seeds)]
            revisions += [record["revision"] or "unknown" for record in records]
            on_dev, on_test = ([record["values"][split] for record in records] for split in SPLITS)
            test = mean_by_question(on_test)
            rows[name] = {
                "dev": fmean(mean_by_question(on_dev).values()),
                "test": fmean(test.values()),
                "deviation": deviation(on_test),
                "against": None if setting == DEFAULT else tested(test, default),
                "bytes_an_edge": bytes_of_edges(graph) / (graph.num_queries * graph.k),
            }
    if FEATURES in TABLES[one_set.name]:
        figures["cross_encoder"] = cross_encoder_of(one_set).meta["dev"]
    return figures | {"revisions": list(dict.fromkeys(revisions))}


def bytes_of_edges(graph: Graph) -> int:
    """Bytes of the edges' features and vectors."""
    names = ("edge_features", "edge_vectors", "edge_scales", "edge_projection")
    files = [graph.path / f"{name}.npy" for name in names]
    return sum(file.stat().st_size for file in files if file.is_file())


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    seeds = max(figures["seeds"] for figures in results["sets"].values())
    lines = [
        "# Edges per question, attention heads and edge features",
        "",
        "RR@10 × 100 of `gnnretrieval train --layer gat` over one frozen MiniLM, mean ± deviation over",
        f"{seeds} seeds. Each training question has edges to its k first passages; the last of these give way to those",
        "it is labelled with. Δ is to the default (5 edges, 1 head, cheap edge features) on test, with a 95 %",
        "bootstrap interval and the p of a paired t-test.",
        "`python benchmarks/gat_settings.py --data DIRECTORY --work WORK` makes this page.",
    ]
    for name, figures in results["sets"].items():
        lines += ["", f"## {name}", "", f"![edges per question](gat_settings-{name}.svg)", ""]
        lines += [f"The dual-encoder has {100 * figures[DUAL]['dev']:.1f} on dev and {100 * figures[DUAL]['test']:.1f}"]
        lines[-1] += " on test."
        for title, rows in figures["tables"].items():
            lines += ["", f"| {title} | bytes an edge | dev | test | Δ |", "|---|---:|---:|---:|---:|"]
            for value, row in rows.items():
                shown = f"{100 * row['test']:.1f} ± {100 * row['deviation']:.1f}"
                gain = difference(row["against"]) if row["against"] else "–"
                lines.append(f"| {value} | {row['bytes_an_edge']:.0f} | {100 * row['dev']:.1f} | {shown} | {gain} |")
        if "cross_encoder" in figures:
            lines += ["", *_of_cross_encoder(figures["cross_encoder"])]
    revisions = revisions_in_words(one for figures in results["sets"].values() for one in figures["revisions"])
    return "\n".join([*lines, "", f"Trained at revision {revisions}.", ""])


def _of_cross_encoder(dev: Mapping[str, Any]) -> list[str]:
    """What the cross-encoder knows."""
    return [
        f"The cheap features are {', '.join(GraphSettings().edge_features)}. The cross-encoder is trained on the same",
        f"labels, against the frozen encoder's first {CANDIDATES} passages. Ranking these and the relevant one, it has",
        f"{100 * dev['best']['dev']['RR@10']:.1f} RR@10 on dev; the area under the ROC curve of its probability is"
        f" {dev['calibration']['auc']:.2f}.",
    ]


def plot(figures: Mapping[str, Any]) -> str:
    """SVG of RR@10 by edges per question, with the dual-encoder as a line."""
    rows = figures["tables"][EDGES]
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
@click.option("--seeds", default=5, show_default=True, help="How many.")
@click.option("--only", multiple=True, type=click.Choice([*TABLES]), help="Some of the sets.")
def main(data: Path, work: Path, seeds: int, only: tuple[str, ...]) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    path = RESULTS / "gat_settings.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}}
    for name in only or TABLES:
        results["sets"][name] = figures_of(OneSet.of(name, data, work), seeds)
        results |= {"versions": library_versions(), "cpus": os.cpu_count()}
        write_json(path, json.loads(json.dumps(results)))
        path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")
        (RESULTS / f"gat_settings-{name}.svg").write_text(plot(results["sets"][name]), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
