"""Graph layers on top of what the ladder keeps: does attention add to heads, label mean, rejection and prior?

    .venv/bin/python benchmarks/attention_over_ladder.py --data DIRECTORY --work WORK

The layer works in the space of the ladder's heads: h'_p = z_p + λ f ⊙ h~_p, with z_p after label mean and rejection,
and prior and local scaling as factors, as the ladder chose them. An epoch masks one of four folds of the training
questions; its heads and its z_p are of the other three, so that the layer sees questions as it will at search. λ is
chosen on dev after the last epoch. Sets, graphs and models of layer = linear are those of benchmarks/same_labels.py in
the same WORK, where each seed is kept: stopped, the same command goes on. Writes results/attention_over_ladder.json and
.md; with --only, the other sets stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from numpy.typing import NDArray
from result_files import revisions_in_words
from same_labels import MEASURE, SETS, OneSet, deviation, mean_by_question, tested
from same_labels_page import DEBIAN, difference, spread
from torch import Tensor

from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, local_scale, nearness, seen_by_heads
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.ladder import message_graph, reciprocal_ranks
from gnnretrieval.training.gnn.loop import GNNTraining

RESULTS = Path(__file__).resolve().parent / "results"
FOLDS, EPOCHS = 4, 12
SCALES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)


class Questions(NamedTuple):
    """Questions of a split, ``(q, d)`` in the space of the heads, and the rows of their relevant passages."""

    vectors: Tensor
    relevant: Sequence[Sequence[int]]


class OverLadder(GNNTraining):
    """Training over the vectors that the ladder's messages make, which differ by the fold that is masked.

    Args:
        folds: Of each fold: the graph's view without it.
        fold: ``(n,)`` fold of each query; -1: it has no label.
        given: Arguments of :class:`GNNTraining`.
    """

    def __init__(self, folds: Sequence[Graph], fold: NDArray[np.int64], *given: Any) -> None:
        super().__init__(*given)
        self.folds, self.fold, self.steps_per_epoch = (
            folds,
            fold,
            -(-int((fold == 0).sum()) // self.settings.batch_size),
        )

    def epoch(self, epoch: int, advance: Any = None) -> dict[str, Any]:
        """Train on one fold, over the vectors of the others."""
        rng = np.random.default_rng([self.settings.seed, epoch])
        masked = self.fold == epoch % FOLDS
        self.store = self.folds[epoch % FOLDS]
        self.tensors = GraphTensors(self.store, self.device)
        self.allowed = np.unique(self.labels[masked[self.labels[:, 0]], 1])
        queries = rng.permutation(np.flatnonzero(masked))
        for start in range(0, len(queries), self.settings.batch_size):
            self._step(
                np.sort(queries[start : start + self.settings.batch_size]), None, None, self.shown & ~masked, rng
            )
        return {}


def after_messages(store: Graph, graph: MessageGraph, heads: Heads, messages: Messages) -> Graph:
    """The store's view with ``z_p`` and ``H_q h_q`` as node features."""
    with torch.no_grad():
        _, passages, queries = seen_by_heads(graph, heads, messages)
    view = store.with_features(passages.numpy(), queries.numpy())
    view.source_features = passages.numpy()
    return view


@torch.no_grad()
def measured(
    training: GNNTraining, view: Graph, factors: Tensor, questions: Mapping[str, Questions], shown: NDArray[np.bool_]
) -> dict[str, dict[float, NDArray[np.float64]]]:
    """RR@10 of each question ``(q,)`` by split and ``λ``."""
    blocks = [(passages, context) for _, passages, context in gated_contexts(training.average, view, "cpu", shown)]
    passages, context = (torch.cat(part) for part in zip(*blocks, strict=True))
    values: dict[str, dict[float, NDArray[np.float64]]] = {split: {} for split in questions}
    for scale in SCALES:
        vectors = view.similarity.prepare(passages + scale * context) * factors[:, None]
        for split, part in questions.items():
            values[split][scale] = reciprocal_ranks(vectors, part.vectors, part.relevant)
    return values


def kept_over(one_set: OneSet, layer: str, seed: int) -> dict[str, Any]:
    """:func:`train_over`, kept for a later run of this script."""
    kept = one_set.place / f"linear-{seed}" / f"over-{layer}.json"
    if kept.is_file() and (record := json.loads(kept.read_text("utf-8")))["graph"] == one_set.graph.hash:
        return dict(record)
    record = {"graph": one_set.graph.hash, **train_over(one_set, layer, seed)}
    write_json(kept, record)
    return record


def train_over(one_set: OneSet, layer: str, seed: int) -> dict[str, Any]:
    """Train a layer over the ladder's vectors; dev chooses ``λ``, test is measured."""
    store, place = one_set.graph, one_set.place / f"linear-{seed}"
    settings = TrainSettings.parse({"layer": "linear", "seed": seed})
    model = train_gnn(store, one_set.dataset, one_set.features, settings, place / "model", overwrite=True)
    trained = model.load_messages()
    messages, heads = trained.messages, trained.heads or Heads.shared(torch.eye(store.dimension))
    held_out = held_out_queries(store, one_set.dataset, one_set.features, seed, np.ones(store.num_queries, dtype=bool))
    graph = message_graph(store, held_out.hidden)
    shown = graph.visible.numpy()
    labelled, fold = np.unique(graph.labels[:, 0].numpy()), np.full(store.num_queries, -1)
    fold[labelled] = np.random.default_rng(seed).permutation(len(labelled)) % FOLDS
    views = []
    for number in range(FOLDS):
        inside, fold_heads = graph.without(torch.from_numpy(fold == number)), heads
        if trained.heads is not None:
            steps = round(messages.steps * (1 - 1 / FOLDS))  # as many passes over fewer questions
            fold_heads = train_heads(inside, steps, sides=messages.sides, mean=messages.trained_mean, seed=seed)
        views.append(after_messages(store, inside, fold_heads, messages))
    whole = after_messages(store, graph, heads, messages)
    factors = 1 + messages.prior * (graph.label_counts > 0).float()
    if messages.scaling:
        passages, queries = (
            torch.from_numpy(np.asarray(part)) for part in (whole.passage_features, whole.query_features)
        )
        factors = factors * local_scale(nearness(graph, passages, queries), messages.level, messages.scaling)
    of_layer = TrainSettings.parse({"layer": layer, "epochs": EPOCHS, "mask_ratio": 1 / FOLDS, "seed": seed})
    dev = DevSet(held_out.queries, held_out.relevant, store.similarity)
    training = OverLadder(views, fold, whole, dev, of_layer, place / "over", "cpu", held_out.hidden)
    for epoch in range(EPOCHS):
        training.epoch(epoch)
    values = measured(training, whole, factors, questions_of(one_set, graph, heads, held_out), shown)
    gains = {scale: ranks - values["dev"][0.0] for scale, ranks in values["dev"].items() if scale}
    best = max(gains, key=lambda scale: float(gains[scale].mean()))
    error = float(gains[best].std(ddof=1) / len(gains[best]) ** 0.5)
    ids = [str(number) for number in range(len(values["test"][0.0]))]
    ladder, over = (dict(zip(ids, map(float, values["test"][scale]), strict=True)) for scale in (0.0, best))
    return {
        "messages": messages._asdict(),
        "scale": best,
        "dev": {"questions": len(gains[best]), "gain": float(gains[best].mean()), "error": error},
        "test": {"ladder": ladder, "over": over},
        "revision": git_revision() or "unknown",
    }


def over_seeds(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and a test of what the layer adds on test."""
    of_ladder, over = ([record["test"][system] for record in records] for system in ("ladder", "over"))
    return {
        "scales": [record["scale"] for record in records],
        "gains": [record["dev"]["gain"] for record in records],
        "kept": sum(record["dev"]["gain"] > record["dev"]["error"] for record in records),
        "messages": [record["messages"] for record in records],
        "ladder": fmean(mean_by_question(of_ladder).values()),
        "deviation": deviation(of_ladder),
        **tested(mean_by_question(over), mean_by_question(of_ladder)),
        "revision": revisions_in_words(record["revision"] for record in records),
    }


def questions_of(one_set: OneSet, graph: MessageGraph, heads: Heads, held_out: Any) -> dict[str, Questions]:
    """Dev and test questions in the space of the heads."""
    row = {name: number for number, name in enumerate(one_set.dataset.passage_ids)}
    judged = one_set.dataset.split("test")
    relevant = {query: [row[name] for name, grade in grades.items() if grade > 0] for query, grades in judged.items()}
    relevant = {query: rows for query, rows in relevant.items() if rows}
    vectors = one_set.features.queries[one_set.features.rows_of([*relevant])]
    by_split = {"dev": (held_out.queries, held_out.relevant), "test": (vectors, [*relevant.values()])}
    questions = {}
    for split, (queries, rows) in by_split.items():
        prepared = graph.prepare(torch.from_numpy(np.asarray(queries, dtype=np.float32)))
        questions[split] = Questions(graph.prepare(prepared @ heads.queries.T), rows)
    return questions


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Graph layers on top of the ladder",
        "",
        f"{MEASURE} × 100. The ladder is `gnnretrieval train` by its defaults. A layer is trained over the vectors",
        f"that it makes, for {EPOCHS} epochs of a quarter of the training questions each; heads and label means of an",
        "epoch do not know that quarter. The gated context is added with the weight λ above 0 that is best on dev, and",
        "the difference on test is to the ladder alone, with the p of a paired t-test. `kept` says whether the gain on",
        "dev is more than its standard error, which is the ladder's rule. Gains and differences are means over",
        "seeds.",
        "",
        "`python benchmarks/attention_over_ladder.py --data DIRECTORY --work WORK` makes this page.",
        "",
        "| set | layer | λ | gain on dev | kept | ladder on test | Δ on test |",
        "|---|---|---|---:|---|---:|---:|",
    ]
    for name, rows in results["sets"].items():
        for layer, row in rows.items():
            scales = ", ".join(f"{scale:g}" for scale in row["scales"])
            gain, kept = f"{100 * fmean(row['gains']):+.1f}", f"{row['kept']} of {len(row['gains'])} seeds"
            ladder = spread(row["ladder"], row["deviation"])
            lines.append(f"| {name} | {layer} | {scales} | {gain} | {kept} | {ladder} | {difference(row)} |")
    revisions = revisions_in_words(row["revision"] for rows in results["sets"].values() for row in rows.values())
    return "\n".join([*lines, "", f"The package was at revision {revisions}.", ""])


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Holds the real sets.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where everything that is made goes.")
@click.option("--only", multiple=True, type=click.Choice([*SETS]), help="Only these sets.")
@click.option("--seeds", default=5, show_default=True, help="How many.")
@click.option("--layers", multiple=True, type=click.Choice(GRAPH_LAYERS), default=("gat",), show_default=True)
def main(data: Path, work: Path, only: tuple[str, ...], seeds: int, layers: tuple[str, ...]) -> None:
    """Measure, and write the page."""
    show_progress()
    path = RESULTS / "attention_over_ladder.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}}
    for name in only or [name for name in SETS if name not in DEBIAN]:
        one_set = OneSet.of(name, data, work)
        for layer in layers:
            records = [kept_over(one_set, layer, seed) for seed in range(seeds)]
            results["sets"].setdefault(name, {})[layer] = over_seeds(records)
            results["sets"] = {known: results["sets"][known] for known in SETS if known in results["sets"]}
            write_json(path, results)
            path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
