"""Adding 1% new queries to a graph store against building all of it: seconds of each, and whether they are equal.

    .venv/bin/python benchmarks/graph_add.py --work DIRECTORY --scale 0.02

Uses a synthetic set of MS MARCO's shape (benchmarks/synthetic.py) of width 384, with k = 25. Features are ready in both
cases, so encoding is not counted. Writes results/graph_add.json and results/graph_add.md.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
DIMENSION, K, LATE = 384, 25, 0.01


def measure(work: Path, edge_features: tuple[str, ...]) -> dict[str, Any]:
    """Build the early graph, add the late queries, build the whole graph, and compare every array."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
    from gnnretrieval.graph import GraphSettings, build_graph
    from gnnretrieval.graph.growth.add import add_to_graph
    from gnnretrieval.graph.growth.additions import read_additions

    opened: dict[str, Any] = {}
    for name, queries in (("early", "early-queries.npy"), ("whole", "queries.npy")):
        dataset = Dataset.open(work / name)
        of_vectors = VectorSettings(name="synthetic", similarity="cosine")
        files = work / "passages.npy", work / queries
        features = import_vectors(dataset, *files, of_vectors, work / f"features-{name}", overwrite=True)
        opened[name] = dataset, features
    settings = GraphSettings(k=K, edge_features=edge_features, label_edges=False)
    for place in ("graph", "rebuilt"):
        shutil.rmtree(work / place, ignore_errors=True)
    graph = build_graph(opened["early"][0], opened["early"][1], settings, work / "graph")
    start = time.perf_counter()
    additions = read_additions(
        graph,
        queries=work / "late-queries.jsonl",
        qrels=work / "late-qrels.tsv",
        query_vectors=work / "late-queries.npy",
    )
    assert additions is not None
    grown = add_to_graph(graph.path, additions)
    adding = time.perf_counter() - start
    start = time.perf_counter()
    rebuilt = build_graph(opened["whole"][0], opened["whole"][1], settings, work / "rebuilt")
    building = time.perf_counter() - start
    arrays = sorted(name for name in rebuilt.meta["files"] if name.endswith(".npy"))
    different = [name for name in arrays if grown.meta["files"][name] != rebuilt.meta["files"][name]]
    return {
        "edge_features": list(edge_features),
        "passages": rebuilt.num_passages,
        "queries": rebuilt.num_queries,
        "added": len(additions.queries),
        "seconds_to_add": adding,
        "seconds_to_build": building,
        "ratio": building / adding,
        "arrays": arrays,
        "different": different,
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    runs, scale, k, dimension = (results[name] for name in ("runs", "scale", "k", "dimension"))
    before, added = runs[0]["queries"] - runs[0]["added"], runs[0]["added"]
    rows = "\n".join(
        f"| {', '.join(run['edge_features'])} | {run['seconds_to_add']:.2f} | {run['seconds_to_build']:.1f} | "
        f"**{run['ratio']:.0f}** | {len(run['arrays']) - len(run['different'])} of {len(run['arrays'])} |"
        for run in runs
    )
    return f"""# Adding to a graph store against building it again

Regenerate: `.venv/bin/python benchmarks/graph_add.py --work DIRECTORY --scale {scale:g}`

{added:,} new queries to {before:,} over {runs[0]["passages"]:,} passages
(MS MARCO's shape, scale {scale:g}), k = {k}, {dimension} dimensions, on {results["threads"]} cores; features at hand in
both cases. Wanted: 20 times as fast, and equal.

| edge features | add, s | build, s | ratio | arrays of equal bytes |
|---|---:|---:|---:|---:|
{rows}
"""


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory for what is made.")
@click.option("--scale", type=float, default=0.02, show_default=True, help="1 is MS MARCO.")
def main(work: Path, scale: float) -> None:
    """Measure adding against building."""
    sys.path.insert(0, str(ROOT))
    from synthetic import make_synthetic_set

    from gnnretrieval.platform.memory import keep_freed_memory
    from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

    keep_freed_memory()
    if not (work / "late-queries.npy").is_file():
        make_synthetic_set(work, scale, DIMENSION, late=LATE)
    runs = [measure(work, ("score", "reciprocal_rank")), measure(work, ("score", "reciprocal_rank", "bm25"))]
    results = {
        "scale": scale,
        "k": K,
        "dimension": DIMENSION,
        "runs": runs,
        "threads": os.cpu_count(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "graph_add.json", results)
    page = markdown(results)
    (RESULTS / "graph_add.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    from gnnretrieval.progress import show_progress

    show_progress()
    main()
