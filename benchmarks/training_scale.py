"""Steps of graph attention over a store of MS MARCO's shape, by one and two processes: speed, and memory of each.

    .venv/bin/python benchmarks/training_scale.py --work DIRECTORY --scale 1

DIRECTORY holds the store (about 45 GB at scale 1); what is there is reused. Vectors are synthetic, of width 768, and a
query's neighbours are planted: its labelled passage and others of its topic (benchmarks/synthetic.py). The steps are
those of `train --layer gat` by its defaults; dev, which would embed the corpus after each epoch, is left out: embedding
has a page (benchmarks/store_scale.py). Writes results/training_scale.json and .md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from store_scale import DIMENSION, K, make_store, memory

from gnnretrieval.graph.store import open_graph
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.loop import GNNTraining
from gnnretrieval.training.ranks import started_ranks

RESULTS = Path(__file__).resolve().parent / "results"
GIB = 2**30


def measure(graph: Path, steps: int, neighbors: int | None, out: Path) -> None:
    """In each of the processes of one run: train for ``steps``, and write this one's seconds and memory to ``out``."""
    store = open_graph(graph)
    settings = TrainSettings.parse({"layer": "gat", "neighbors": neighbors, "precision": "float32"})
    share = steps * settings.batch_size / store.num_queries
    settings = settings.model_copy(update={"mask_ratio": share})
    dev = DevSet(np.asarray(store.query_features[:1]), [[0]], store.similarity)
    with started_ranks("cpu") as ranks:
        training = GNNTraining(store, dev, settings, out, ranks=ranks)
        training._measured = lambda epoch: {"epoch": epoch}  # type: ignore[method-assign]
        at: list[float] = []
        training.epoch(0, lambda epochs, loss: at.append(time.monotonic()))
        half = len(at) // 2  # pages of the store that many steps need are in memory by then
        result = {
            "steps": len(at),
            "steps_per_second": (len(at) - 1 - half) / (at[-1] - at[half]),
            "own_gib": memory("RssAnon") / GIB,
            "mapped_gib": memory("RssFile") / GIB,
            "peak_gib": memory("VmHWM") / GIB,
        }
        (out / f"{ranks.rank}.json").write_text(json.dumps(result), encoding="utf-8")


def in_processes(count: int, graph: Path, steps: int, neighbors: int | None, out: Path) -> list[dict[str, Any]]:
    """What each of ``count`` processes of one thread measures."""
    out.mkdir(parents=True, exist_ok=True)
    words: tuple[object, ...] = (sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}", __file__)
    words += ("--work", graph, "--steps", steps, "--out", out)
    words += () if neighbors is None else ("--neighbors", neighbors)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*map(str, words)], check=True, env=environment)
    return [json.loads((out / f"{rank}.json").read_text("utf-8")) for rank in range(count)]


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# Training over a store of MS MARCO's shape",
        "",
        f"`python benchmarks/training_scale.py --work DIRECTORY --scale {results['scale']:g}` makes this page.",
        "",
        f"{results['passages']:,} passages and {results['queries']:,} queries of {DIMENSION} dimensions, k = {K}: the",
        f"store takes {results['bytes'] / GIB:.1f} GiB, and this machine has {results['memory'] / GIB:.0f} GiB of",
        "memory. Each process has one thread. Steps a second are those of the second half of the steps. Own memory is",
        "the process's; mapped pages are the store's: processes share them, and the system takes them back at need.",
        "The first run may find the store's pages on disk; the later ones find many in memory.",
        "",
        "| processes | edges of a passage in training | steps a second | own memory of each | mapped pages |",
        "|---:|---|---:|---:|---:|",
    ]
    for row in results["runs"]:
        slowest = min(rank["steps_per_second"] for rank in row["ranks"])
        own, mapped = (max(rank[name] for rank in row["ranks"]) for name in ("own_gib", "mapped_gib"))
        sampled = "all" if row["neighbors"] is None else f"at most {row['neighbors']}"
        lines.append(f"| {row['processes']} | {sampled} | {slowest:.2f} | {own:.2f} GiB | {mapped:.2f} GiB |")
    return "\n".join([*lines, "", f"Revision {results['revision'][:7]}.", ""])


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory for what is made.")
@click.option("--scale", type=float, default=1.0, show_default=True, help="1 is MS MARCO.")
@click.option("--steps", default=60, show_default=True, help="Steps of each run, of 128 queries.")
@click.option("--neighbors", type=int, hidden=True)
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def main(work: Path, scale: float, steps: int, neighbors: int | None, out: Path | None) -> None:
    """Measure, and write the page."""
    if out is not None:
        measure(work, steps, neighbors, out)
        return
    show_progress()
    graph = make_store(work, scale, DIMENSION, planted=True)
    runs = []
    for processes in (1, 2):
        for neighbors in (None, 5):
            ranks = in_processes(processes, graph.path, steps, neighbors, work / f"training-{processes}-{neighbors}")
            runs.append({"processes": processes, "neighbors": neighbors, "ranks": ranks})
            say(f"{runs[-1]}")
    results = {
        "scale": scale,
        "passages": graph.num_passages,
        "queries": graph.num_queries,
        "bytes": sum(file.stat().st_size for file in graph.path.rglob("*") if file.is_file()),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "runs": runs,
        "revision": git_revision() or "unknown",
    }
    write_json(RESULTS / "training_scale.json", results)
    (RESULTS / "training_scale.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
