"""A graph store of MS MARCO's shape: time to open, look up, inspect and embed it, and the memory that this takes.

    .venv/bin/python benchmarks/store_scale.py --work DIRECTORY --scale 0.1

DIRECTORY holds what is made (about 45 GB at scale 1, 5 GB at 0.1); what is there is reused. Writes
results/store_scale.json and results/store_scale.md. Exact top-k at scale 1 takes a day of 2 cores. With --planted, a
query's neighbours are instead its labelled passage and others of its topic, and the result files are called
store_scale_SCALE.*. Vectors are synthetic (benchmarks/synthetic.py), of width 768; the model's weights are a seeded
perturbation of the start, since neither time nor memory depends on them. With --texts FILE (a corpus.jsonl), some of
its passages are encoded by all-MiniLM-L6-v2, to compare the cost of the graph with that of encoding.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
DIMENSION, K = 768, 25


def memory(field: str) -> int:
    """Resident memory of this process in bytes: ``VmRSS`` now, ``VmHWM`` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_opening(store: Path) -> dict[str, Any]:
    """In a fresh process: seconds to open, and milliseconds of neighbour lookups by id."""
    import gnnretrieval.graph.neighborhood as neighborhood
    from gnnretrieval.graph import open_graph

    start = time.perf_counter()
    graph = open_graph(store)
    opened = time.perf_counter() - start
    rng = np.random.default_rng(0)
    lookups: dict[str, list[float]] = {"passage": [], "query": []}
    for _ in range(500):
        passage, query = f"p{rng.integers(graph.num_passages)}", f"q{rng.integers(graph.num_queries)}"
        for node, look_up, id_ in (
            ("passage", neighborhood.queries_of_passage, passage),
            ("query", neighborhood.passages_of_query, query),
        ):
            start = time.perf_counter()
            look_up(graph, id_)
            lookups[node].append(1000 * (time.perf_counter() - start))
    return {
        "seconds_to_open": opened,
        "lookup_ms": {
            node: {"median": float(np.median(times)), "p99": float(np.percentile(times, 99)), "max": max(times)}
            for node, times in lookups.items()
        },
    }


def measure_embedding(store: Path, model: Path, out: Path) -> dict[str, Any]:
    """In a fresh process: seconds to embed every passage, and resident memory above the libraries'."""
    import torch

    from gnnretrieval.graph import open_graph
    from gnnretrieval.platform.memory import keep_freed_memory
    from gnnretrieval.training import embed_passages, open_model

    keep_freed_memory()
    shutil.rmtree(out, ignore_errors=True)  # made again, never reused
    opened, graph = open_model(model), open_graph(store)
    torch.ones(512, 512) @ torch.ones(512, 512)  # the libraries' own buffers
    baseline = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    start = time.perf_counter()
    embed_passages(opened, graph, out, overwrite=True)
    seconds = time.perf_counter() - start
    peak = memory("VmHWM")
    return {"seconds": seconds, "resident_bytes": {"libraries": baseline, "peak": peak, "above": peak - baseline}}


def measure_machine() -> dict[str, float]:
    """Highest speed of the machine, a second: bytes read from memory, and float32 operations of the gate's product."""
    import torch

    numbers = torch.ones(2**28)
    numbers.sum()
    start = time.perf_counter()
    for _ in range(5):
        numbers.sum()
    read = 5 * 4 * numbers.numel() / (time.perf_counter() - start)
    rows, weights = torch.randn(8192, 2 * DIMENSION), torch.randn(DIMENSION, 2 * DIMENSION)
    rows @ weights.T
    start = time.perf_counter()
    for _ in range(10):
        rows @ weights.T
    return {
        "bytes_read": read,
        "float32_operations": 10 * 2 * rows.numel() * DIMENSION / (time.perf_counter() - start),
    }


def measure_encoding(texts: Path) -> dict[str, Any]:
    """Seconds a passage to encode it by all-MiniLM-L6-v2 (128 tokens), and to embed it over a graph of this width."""
    import tempfile

    import torch

    from gnnretrieval.data.beir import read_passages
    from gnnretrieval.encoders import EncoderSettings
    from gnnretrieval.encoders.dual_encoder import DualEncoder
    from gnnretrieval.graph.store import Graph
    from gnnretrieval.training.gnn.embedding import gated_contexts

    encoder = DualEncoder(EncoderSettings(max_tokens=128))
    passages = [passage.full_text for passage, _ in itertools.islice(read_passages(texts), 1500)]
    encoder.encode(passages[:64], "passage")
    start = time.perf_counter()
    encoder.encode(passages, "passage")
    encoding = (time.perf_counter() - start) / len(passages)
    with tempfile.TemporaryDirectory() as place:
        graph = make_store(Path(place), 0.005, encoder.dimension)
        module = perturbed(encoder.dimension, graph.edge_dim)
        start = time.perf_counter()
        for _, vectors, context in gated_contexts(module, Graph(graph.path, graph.meta)):
            torch.nn.functional.normalize(vectors + context, dim=-1)
        embedding = (time.perf_counter() - start) / graph.num_passages
    return {"encode": encoding, "embed": embedding, "overhead": embedding / encoding, "passages": len(passages)}


def make_store(work: Path, scale: float, dimension: int, planted: bool = False, dev: int = 0) -> Any:
    """Make the synthetic set, its features and its graph in the directory ``work``; returns the graph.

    The first ``dev`` training queries are also the dev split, so that training leaves them out.
    """
    from synthetic import make_synthetic_set

    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
    from gnnretrieval.graph import GraphSettings, build_graph

    if not (work / "queries.npy").is_file():
        make_synthetic_set(work, scale, dimension)
        if dev:
            with (work / "whole" / "qrels" / "train.tsv").open(encoding="utf-8") as judged:
                lines = list(itertools.islice(judged, 1 + dev))
            (work / "whole" / "qrels" / "dev.tsv").write_text("".join(lines), encoding="utf-8")
    dataset = Dataset.open(work / "whole")
    settings = VectorSettings(name="synthetic", similarity="cosine")
    features = import_vectors(dataset, work / "passages.npy", work / "queries.npy", settings, work / "features")
    graph = GraphSettings(k=K, edge_features=("score", "reciprocal_rank"))
    if planted:
        import gnnretrieval.graph.build as building
        from gnnretrieval.graph.edges.neighbors import scores_of

        def known(queries: Any, passages: Any, *_: Any) -> tuple[Any, Any]:
            rows = np.load(work / "planted.npy").astype(np.int64)
            return rows, scores_of(rows, queries, passages, settings.compares())

        vars(building)["by_dual_encoder"] = known
    return build_graph(dataset, features, graph, work / "graph")


def perturbed(dimension: int, edge_dim: int) -> Any:
    """A GNN-encoder whose weights are its start plus seeded noise."""
    import torch

    from gnnretrieval.nn import GNNEncoder

    torch.manual_seed(0)
    module = GNNEncoder(dimension, edge_dim).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    return module


def make_model(graph: Any, out: Path) -> None:
    """Write a perturbed GNN-encoder that fits ``graph`` as an artifact."""
    from safetensors.torch import save_file

    from gnnretrieval.storage.making import make_artifact
    from gnnretrieval.training.gnn.messages import WEIGHTS
    from gnnretrieval.training.gnn.model import KIND

    def write(directory: Path) -> dict[str, Any]:
        save_file(perturbed(graph.dimension, graph.edge_dim).state_dict(), directory / WEIGHTS)
        return {
            "dimension": graph.dimension,
            "edge_dim": graph.edge_dim,
            "edge_features": graph.edge_names,
            "similarity": graph.similarity.model_dump(),
            "checkpoint_hash": graph.meta["checkpoint_hash"],
            "made_from": {},
        }

    make_artifact(out, KIND, inputs={"graph": graph.hash}, config={}, write=write, seed=0, overwrite=True)


def in_a_fresh_process(measure: str, *paths: Path) -> dict[str, Any]:
    """The result of ``measure_NAME(*paths)``, with ``measure`` as NAME, in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--measure",
        measure,
        *[word for path in paths for word in ("--path", str(path))],
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@click.command()
@click.option("--work", type=click.Path(path_type=Path), help="Directory for what is made.")
@click.option("--scale", type=float, default=0.1, show_default=True, help="1 is MS MARCO.")
@click.option("--planted", is_flag=True, help="Take each query's neighbours from its topic, without a search.")
@click.option(
    "--texts", type=click.Path(path_type=Path, exists=True), help="corpus.jsonl to measure plain encoding on."
)
@click.option("--measure", hidden=True)
@click.option("--path", "paths", type=click.Path(path_type=Path), multiple=True, hidden=True)
def main(
    work: Path | None, scale: float, planted: bool, texts: Path | None, measure: str | None, paths: tuple[Path, ...]
) -> None:
    """Measure a store of MS MARCO's shape."""
    if measure is not None:
        click.echo(json.dumps(globals()[f"measure_{measure}"](*paths)))
        return
    if work is None:
        raise click.UsageError("give --work DIRECTORY.")
    sys.path.insert(0, str(ROOT))
    from gnnretrieval.progress import say
    from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

    start = time.perf_counter()
    graph = make_store(work, scale, DIMENSION, planted)
    seconds = time.perf_counter() - start
    make_model(graph, work / "model")
    results: dict[str, Any] = {
        "scale": scale,
        "planted": planted,
        "passages": graph.num_passages,
        "queries": graph.num_queries,
        "k": K,
        "dimension": DIMENSION,
        "bytes_on_disk": sum(file.stat().st_size for file in graph.path.rglob("*") if file.is_file()),
        "seconds_to_make_or_reuse": seconds,
        **in_a_fresh_process("opening", graph.path),
        "machine": in_a_fresh_process("machine"),
        "embedding": in_a_fresh_process("embedding", graph.path, work / "model", work / "embeddings"),
    }
    say("inspecting")
    start = time.perf_counter()
    from gnnretrieval.graph import inspect_graph

    inspect_graph(graph)
    results["seconds_to_inspect"] = time.perf_counter() - start
    if texts is not None:
        results["beside_minilm"] = in_a_fresh_process("encoding", texts)
    results |= roofline(results, graph)
    results |= {"versions": library_versions(), "git_revision": git_revision(), "threads": os.cpu_count(), "seed": 0}
    name = f"store_scale_{scale:g}" if planted else "store_scale"
    write_json(RESULTS / f"{name}.json", results)
    (RESULTS / f"{name}.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


def roofline(results: dict[str, Any], graph: Any) -> dict[str, Any]:
    """Bytes that embedding must read, operations that it must compute, and the machine's seconds for each."""
    m, n, d = graph.num_passages, graph.num_queries, graph.dimension
    names = ("passage_features", "query_features", "neighbors", "edge_features", "passage_indptr", "passage_edges")
    read = sum((graph.path / f"{name}.npy").stat().st_size for name in names)
    operations = 2 * d * d * 3 * (m + n)  # W_s and the gate (or W_pq) of each node: eq. 5, 7, 9
    machine, seconds = results["machine"], results["embedding"]["seconds"]
    return {
        "roofline": {
            "bytes": read,
            "operations": operations,
            "seconds_to_read": read / machine["bytes_read"],
            "seconds_to_compute": operations / machine["float32_operations"],
            "share_of_read_speed": read / machine["bytes_read"] / seconds,
            "share_of_compute_speed": operations / machine["float32_operations"] / seconds,
        }
    }


def _rows(results: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and aim of each figure."""
    embedding, bound, lookup = results["embedding"], results["roofline"], results["lookup_ms"]
    gib = 2**30
    rows = [
        ("on disk", f"{results['bytes_on_disk'] / gib:.2f} GiB", ""),
        ("opened in", f"{1000 * results['seconds_to_open']:.0f} ms", "500 ms"),
        (
            "neighbours of a passage, by id, with texts",
            f"{lookup['passage']['median']:.2f} ms (p99 {lookup['passage']['p99']:.2f})",
            "5 ms",
        ),
        (
            "neighbours of a query, by id, with texts",
            f"{lookup['query']['median']:.2f} ms (p99 {lookup['query']['p99']:.2f})",
            "5 ms",
        ),
        ("inspected in", f"{results['seconds_to_inspect']:.0f} s", ""),
        (
            "all passages embedded in",
            f"{embedding['seconds']:.1f} s: {1e6 * embedding['seconds'] / results['passages']:.1f} µs a passage",
            "",
        ),
        ("resident memory above the libraries'", f"{embedding['resident_bytes']['above'] / gib:.2f} GiB", "2 GiB"),
        (
            "share of the speed of reading its bytes from memory",
            f"{100 * bound['share_of_read_speed']:.1f} % ({bound['bytes'] / gib:.2f} GiB)",
            "50 %",
        ),
        (
            "share of the speed of its matrix products alone (float32)",
            f"{100 * bound['share_of_compute_speed']:.0f} % ({bound['operations'] / 1e12:.2f} T operations)",
            "",
        ),
    ]
    if "beside_minilm" in results:
        beside = results["beside_minilm"]
        rows.append(
            (
                "the graph beside plain encoding by all-MiniLM-L6-v2 (width 384)",
                f"{1e6 * beside['embed']:.1f} µs on {1000 * beside['encode']:.2f} ms a passage: "
                f"{100 * beside['overhead']:.2f} %",
                "2 %",
            )
        )
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The figures as a page."""
    bound = results["roofline"]
    table = "\n".join(f"| {name} | {value} | {aim} |" for name, value, aim in _rows(results))
    return f"""# A graph store of MS MARCO's shape, scale {results["scale"]:g}

Regenerate: `.venv/bin/python benchmarks/store_scale.py --work DIRECTORY --scale {results["scale"]:g}{
        " --planted" if results.get("planted") else ""
    } --texts FILE`

{results["passages"]:,} passages, {results["queries"]:,} queries, k = {results["k"]}, {results["dimension"]} dimensions,
on {results["threads"]} cores. Vectors are synthetic{
        "; a query is joined to its labelled passage and to others of its topic, without a search"
        if results.get("planted")
        else ""
    }.

| | measured | wanted |
|---|---|---|
{table}

Embedding is bound by its products, not by memory: the filter gate alone (eq. 9) is a dense `2d → d` product, some
2,300 operations for each byte of a passage. This machine reads {results["machine"]["bytes_read"] / 1e9:.0f} GB and
computes {results["machine"]["float32_operations"] / 1e9:.0f} G operations of such a product a second, so the bytes are
read in {bound["seconds_to_read"]:.2f} s and the products take {bound["seconds_to_compute"]:.1f} s at the least.
"""


if __name__ == "__main__":
    from gnnretrieval.progress import show_progress

    show_progress()
    main()
