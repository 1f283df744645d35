"""Attention on labelled and on other questions, trained with masked graph training and without (the paper's figure 2).

    .venv/bin/python benchmarks/attention_scores.py --data DIRECTORY --work WORK

The figure shows one passage: without masking, attention is on the questions that are labelled with it, and others
that may be relevant too get little. Here it is measured over all passages that have both kinds of question, or a
sample of them. Sets, features and graphs are those of benchmarks/same_labels.py in the same WORK. Both models are
``--layer gat`` by its defaults but for the mask and the number of epochs, after the last epoch: no epoch is chosen on
dev, since without masking none would be. Writes results/attention_scores.json and .md; with --only, the other sets
stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from same_labels import MEASURE, SETS, OneSet
from scipy import stats

from gnnretrieval.graph.store import Graph
from gnnretrieval.index.attention_explainer import AttentionExplainer
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import progress, say, show_progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn.graph_tensors import GraphTensors
from gnnretrieval.training.gnn.train import TrainingPlan

RESULTS = Path(__file__).resolve().parent / "results"
MOST, EPOCHS = 1000, 40  # passages; of training
WITH, WITHOUT = "with masking", "without"  # MGT, w/o MGT
UNITS = {WITH: "query", WITHOUT: "none"}


class OfLastEpoch(AttentionExplainer):
    """Attention of a model that training has just left.

    Args:
        model: The model.
        store: The graph.
    """

    def __init__(self, model: GNNEncoder, store: Graph) -> None:
        self.store, self.model = store, model.eval()
        self._tensors, self._texts = GraphTensors(store), store.texts()


def passages_with_both(store: Graph) -> NDArray[np.int64]:
    """Rows of passages that have labelled questions and others, at most :data:`MOST` at random."""
    labelled = set(map(tuple, store.labels.tolist()))
    joined: dict[int, set[bool]] = {}
    for query, neighbors in enumerate(store.neighbors.astype(np.int64).tolist()):
        for passage in neighbors:
            joined.setdefault(passage, set()).add((query, passage) in labelled)
    rows = np.array(sorted(passage for passage, kinds in joined.items() if len(kinds) == 2))
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST])


def attention_of(model: GNNEncoder, store: Graph, passages: NDArray[np.int64]) -> dict[str, Any]:
    """Mean attention of a labelled question and of another one, by passage, and whether the highest is labelled."""
    explainer = OfLastEpoch(model, store)
    with store.texts() as texts:
        row_of = {id_: row for row, id_ in enumerate(texts.query_ids())}
    labelled = set(map(tuple, store.labels.tolist()))
    values: dict[str, list[float]] = {name: [] for name in ("labelled", "other", "own", "first")}
    with progress("attention", len(passages), "passages") as meter:
        for passage in passages.tolist():
            attention = explainer.attention_of_passage(passage)
            by_kind: dict[bool, list[float]] = {True: [], False: []}
            for query, weight in attention.weights.items():
                by_kind[(row_of[query], passage) in labelled].append(weight)
            values["labelled"].append(float(np.mean(by_kind[True])))
            values["other"].append(float(np.mean(by_kind[False])))
            values["own"].append(attention.own)
            values["first"].append(float(max(by_kind[True]) > max(by_kind[False])))
            meter.advance(1)
    return values


def figures_of(one_set: OneSet, seed: int) -> dict[str, Any]:
    """Both models of a set, compared passage by passage."""
    store = one_set.graph
    passages = passages_with_both(store)
    attention, dev = {}, {}
    for name, unit in UNITS.items():
        settings = TrainSettings.parse({"layer": "gat", "mask_unit": unit, "seed": seed, "epochs": EPOCHS})
        place = one_set.place / f"attention-{unit}-{seed}"
        place.mkdir(parents=True, exist_ok=True)
        training = TrainingPlan.of(store, one_set.dataset, one_set.features, settings).training(place)
        training.run()
        attention[name] = attention_of(training.average, training.store, passages)
        history = training.progress.history
        best = max(record["dev"] for record in history)
        dev[name] = {"dual_encoder": history[-1]["dual_encoder"], "best": best}
        labelled, other = (np.mean(attention[name][kind]) for kind in ("labelled", "other"))
        say(f"{one_set.name}, {name}: {labelled:.3f}, others {other:.3f}")
    logs = {name: np.log(np.array(kinds["labelled"]) / np.array(kinds["other"])) for name, kinds in attention.items()}
    return {
        "passages": len(passages),
        "seed": seed,
        "means": {
            name: {kind: float(np.mean(values)) for kind, values in kinds.items()} for name, kinds in attention.items()
        },
        "ratio": {name: float(np.exp(log.mean())) for name, log in logs.items()},
        "p": float(stats.ttest_rel(logs[WITHOUT], logs[WITH]).pvalue),
        "dev": dev,
        "revision": git_revision() or "unknown",
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Attention with and without masking",
        "",
        "The paper's figure 2 over many passages instead of one. Attention is that of eq. 8 in `--layer gat` over a",
        f"frozen MiniLM after {EPOCHS} epochs, trained by masked graph training or without it (`mask_unit = none`:",
        "every question is trained on, without its label edges). The passages are those, at most",
        f"{MOST:,}, that are joined to questions labelled with them and to others. *Ratio* is the geometric mean, over",
        "passages, of a labelled question's mean attention by that of another one; p is of a paired t-test of its",
        "logarithm between the two models. *First*: passages whose highest attention is on a labelled question. The",
        f"last column is {MEASURE} × 100 on dev of the best epoch, by its context scale.",
        "",
        "`.venv/bin/python benchmarks/attention_scores.py --data DIRECTORY --work WORK` makes this page.",
        "",
        "| set | passages | training | labelled | other | the passage itself | ratio | first | dev |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, figures in results["sets"].items():
        for training in UNITS:
            means, dev = figures["means"][training], figures["dev"][training]
            ratio = f"{figures['ratio'][training]:.2f}"
            if training == WITHOUT:
                ratio += f" (p = {figures['p']:.1g})" if figures["p"] else " (p < 1e-300)"
            lines.append(
                f"| {name} | {figures['passages']:,} | {training} | {means['labelled']:.3f} | {means['other']:.3f} "
                f"| {means['own']:.3f} | {ratio} | {means['first']:.0%} "
                f"| {100 * dev['dual_encoder']:.1f} → {100 * dev['best']:.1f} |"
            )
    revisions = sorted({figures["revision"][:7] for figures in results["sets"].values()})
    return "\n".join([*lines, "", f"One seed. The package was at revision {', '.join(revisions)}.", ""])


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Holds the real sets.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where everything that is made goes.")
@click.option("--only", multiple=True, type=click.Choice([*SETS]), help="Only these sets.")
def main(data: Path, work: Path, only: tuple[str, ...]) -> None:
    """Measure, and write the page."""
    show_progress()
    keep_freed_memory()
    path = RESULTS / "attention_scores.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"sets": {}}
    for name in only or SETS:
        results["sets"][name] = figures_of(OneSet.of(name, data, work), 0)
        results["sets"] = {known: results["sets"][known] for known in SETS if known in results["sets"]}
        write_json(path, results)
        path.with_suffix(".md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
