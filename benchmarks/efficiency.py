"""Cost of the graph (the paper's table 4): milliseconds a document and a query, with and without the GNN-encoder.

    .venv/bin/python benchmarks/efficiency.py

Runs the recipe graphs/docstrings-cut.toml first, unless its artifacts are there, then measures on them in one process:
the dual-encoder's encoding of documents and the graph's pass over all documents in turn, in several rounds; then
questions to the two indexes in turn, encoding included. Writes results/efficiency.json and .md.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.index import Retriever
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.recipes import run_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training.gnn.embedding import gated_contexts

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS, DOCUMENTS, QUESTIONS = 5, 1000, 300


def milliseconds(job: Callable[[], object]) -> float:
    """Milliseconds that one call takes."""
    begun = time.perf_counter()
    job()
    return 1000 * (time.perf_counter() - begun)


def measure(work: Path) -> dict[str, Any]:
    """Milliseconds a document and a query, of both encoders."""
    run = run_recipe(ROOT / "graphs" / "docstrings-cut.toml", out=work / "docstrings-cut")
    encoder = DualEncoder(run.recipe.encoder)
    texts = [passage.full_text for passage in run.dataset.passages()]
    queries = [query.text for query in run.dataset.queries_of("train")]
    module = run.model.load()

    def graph_pass() -> None:
        for _ in gated_contexts(module, run.graph):
            pass

    sample = texts[:: max(1, len(texts) // DOCUMENTS)][:DOCUMENTS]
    documents: dict[str, list[float]] = {"dual-encoder": [], "graph": [], "queries": []}
    for _ in range(ROUNDS):
        documents["dual-encoder"].append(milliseconds(lambda: encoder.encode(sample, "passage")) / len(sample))
        documents["graph"].append(milliseconds(graph_pass) / len(texts))
        documents["queries"].append(milliseconds(lambda: encoder.encode(queries[:DOCUMENTS], "query")) / DOCUMENTS)
    searchers = {
        name: Retriever.open(run.directory / place)
        for name, place in (("dual-encoder", "index-dual-encoder"), ("gnn-encoder", "index"))
    }
    questions = [query.text for query in run.dataset.queries_of("test")][:QUESTIONS]
    searches: dict[str, list[float]] = {name: [] for name in searchers}
    for searcher in searchers.values():
        for question in questions[:10]:
            searcher.search(question)
    for number, question in enumerate(questions):  # in turn, and in the other order every other time
        for name in list(searchers)[:: 1 if number % 2 else -1]:
            searches[name].append(milliseconds(partial(searchers[name].search, question)))
    return {
        "milliseconds_a_document": {name: statistics.median(values) for name, values in documents.items()},
        "rounds": documents,
        "milliseconds_a_query": {
            name: {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[-1]}
            for name, values in searches.items()
        },
        "passages": len(texts),
        "graph_queries": run.graph.num_queries,
        "k": run.graph.k,
        "questions": len(questions),
        "dataset": run.dataset.provenance(),
        "processor": platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }


def markdown(results: dict[str, Any]) -> str:
    """The table as a page."""
    document, query = results["milliseconds_a_document"], results["milliseconds_a_query"]
    dual, gnn = query["dual-encoder"], query["gnn-encoder"]
    both = document["dual-encoder"] + document["graph"]
    share = document["queries"] * results["graph_queries"] / results["passages"]
    lines = [
        "# What the graph costs",
        "",
        "Regenerate: `.venv/bin/python benchmarks/efficiency.py`",
        "",
        f"{results['passages']:,} documents, {results['graph_queries']:,} questions in the graph, k = {results['k']}; "
        f"all-MiniLM-L6-v2 on {results['processors']} cores. Medians of {ROUNDS} rounds by turns; "
        f"{results['questions']} questions to each index by turns, encoding included.",
        "",
        "| | ms a document | ms a query (median, 95th percentile) |",
        "| --- | ---: | ---: |",
        f"| dual-encoder | {document['dual-encoder']:.2f} | {dual['median']:.2f}, {dual['p95']:.2f} |",
        f"| GNN-encoder | {both:.2f} | {gnn['median']:.2f}, {gnn['p95']:.2f} |",
        f"| ratio | {both / document['dual-encoder']:.3f} | {gnn['median'] / dual['median']:.3f} |",
        "| in the paper (one A100) | 0.46 : 0.41 | 1.9 : 1.9 |",
        "",
        f"The graph's own pass is {document['graph']:.3f} ms a document. Encoding the graph's questions, once, is "
        f"another {share:.2f} ms a document at this number of questions.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--work", type=click.Path(path_type=Path), help="For the artifacts (default: a temporary directory).")
def main(work: Path | None) -> None:
    """Measure and write the result files."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as temporary:
        results = measure(work or Path(temporary))
    write_json(RESULTS / "efficiency.json", results)
    (RESULTS / "efficiency.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    show_progress()
    main()
