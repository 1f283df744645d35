"""Cost of the graph (the paper's table 4): milliseconds a document and a query, with and without the GNN-encoder.

    .venv/bin/python benchmarks/efficiency.py --data DIRECTORY --work WORK

DIRECTORY and WORK are those of same_labels.py, whose default model of seed 0 is measured, or trained if it is missing.
In one process, by turns and in several rounds: the dual-encoder's encoding of documents, and the graph's pass over all
documents. Then questions to the dual-encoder's index and to those of the GNN-encoder by turns, encoding included. Where
training kept several vectors a passage, the GNN-encoder's index has these, and one with one vector a passage is
measured too. Writes results/efficiency.json and .md.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from same_labels import LINEAR, OneSet, encoder_of
from same_labels_page import DUAL, GNN, MINILM

from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.index import Retriever, build_index
from gnnretrieval.index.faiss_index import ONE_VECTOR
from gnnretrieval.nn.label_messages import message_vectors, several_vectors
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import Embeddings, TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.messages import TrainedMessages, in_words
from gnnretrieval.training.gnn.model import GNNEncoderModel

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("docstrings-cut", "squad-open")
ROUNDS, DOCUMENTS, QUESTIONS = 5, 1000, 300


def milliseconds(job: Callable[[], object]) -> float:
    """Milliseconds that one call takes."""
    begun = time.perf_counter()
    job()
    return 1000 * (time.perf_counter() - begun)


def measured(one_set: OneSet) -> dict[str, Any]:
    """Milliseconds a document and a query, of both encoders."""
    settings = TrainSettings.parse({"layer": LINEAR, "seed": 0})
    place = one_set.place / f"{LINEAR}-0"
    model = train_gnn(one_set.graph, one_set.dataset, one_set.features, settings, place / "model")
    encoder = encoder_of(MINILM, small=one_set.name == SETS[0])
    assert isinstance(encoder, EncoderSettings)
    documents = _documents(one_set, model, DualEncoder(encoder))
    questions = [query.text for query in one_set.dataset.queries_of("test")][:QUESTIONS]
    with tempfile.TemporaryDirectory() as temporary:
        embeddings = embed_passages(model, one_set.graph, Path(temporary) / GNN)
        sources: dict[str, Embeddings | Features] = {DUAL: one_set.features, GNN: embeddings}
        if embeddings.has_questions:
            reduced = embed_passages(model, one_set.graph, Path(temporary) / ONE_VECTOR, one_vector=True)
            sources[ONE_VECTOR] = reduced
        indexes = {name: build_index(one, Path(temporary) / f"index-{name}") for name, one in sources.items()}
        searches = _searches({name: Retriever(index) for name, index in indexes.items()}, questions)
        vectors = {name: index.meta.get("num_vectors", index.meta["num_passages"]) for name, index in indexes.items()}
    return {
        "milliseconds_a_document": {name: statistics.median(values) for name, values in documents.items()},
        "rounds": documents,
        "milliseconds_a_query": {
            name: {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[-1]}
            for name, values in searches.items()
        },
        "vectors": vectors,
        "passages": one_set.graph.num_passages,
        "graph_queries": one_set.graph.num_queries,
        "kept": in_words(_trained(model).messages),
        "questions": len(questions),
        "dataset": one_set.dataset.provenance(),
    }


def _trained(model: GNNEncoderModel) -> TrainedMessages:
    return model.load_questions() if model.question_weight else model.load_messages()


def _documents(one_set: OneSet, model: GNNEncoderModel, encoder: DualEncoder) -> dict[str, list[float]]:
    """Milliseconds a document by round: of encoding, of the graph's pass, and of encoding a question."""
    texts = [passage.full_text for passage in one_set.dataset.passages()]
    queries = [query.text for query in one_set.dataset.queries_of("train")][:DOCUMENTS]
    sample = texts[:: max(1, len(texts) // DOCUMENTS)][:DOCUMENTS]

    @torch.no_grad()
    def graph_pass() -> None:
        (several_vectors if model.question_weight else message_vectors)(message_graph(one_set.graph), *_trained(model))

    rounds: dict[str, list[float]] = {DUAL: [], "graph": [], "queries": []}
    for _ in range(ROUNDS):
        rounds[DUAL].append(milliseconds(lambda: encoder.encode(sample, "passage")) / len(sample))
        rounds["graph"].append(milliseconds(graph_pass) / len(texts))
        rounds["queries"].append(milliseconds(lambda: encoder.encode(queries, "query")) / len(queries))
    return rounds


def _searches(retrievers: Mapping[str, Retriever], questions: list[str]) -> dict[str, list[float]]:
    """Milliseconds of each question to each index, by turns and in the other order every other time."""
    searches: dict[str, list[float]] = {name: [] for name in retrievers}
    for retriever in retrievers.values():
        for question in questions[:10]:
            retriever.search(question)
    for number, question in enumerate(questions):
        for name in list(retrievers)[:: 1 if number % 2 else -1]:
            searches[name].append(milliseconds(partial(retrievers[name].search, question)))
    return searches


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# What the graph costs",
        "",
        "`python benchmarks/efficiency.py` makes this page.",
        "",
        f"all-MiniLM-L6-v2 on {results['processors']} cores, exact indexes. Documents: medians of {ROUNDS} rounds by",
        "turns. Questions: to each index by turns, encoding included. The ratio is to the dual-encoder.",
        "",
        "| set | | vectors | ms a document | ratio | ms a query (median, 95th percentile) | ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    notes = []
    for name, figures in results["sets"].items():
        document, query = figures["milliseconds_a_document"], figures["milliseconds_a_query"]
        for system, times in query.items():
            taken = document[DUAL] + (system != DUAL) * document["graph"]
            cells = [f"{figures['vectors'][system]:,}", f"{taken:.2f}", f"{taken / document[DUAL]:.3f}"]
            cells += [f"{times['median']:.2f}, {times['p95']:.2f}", f"{times['median'] / query[DUAL]['median']:.3f}"]
            lines.append(f"| {name} | {system} | {' | '.join(cells)} |")
        share = document["queries"] * figures["graph_queries"] / figures["passages"]
        notes.append(
            f"- {name}: {figures['passages']:,} documents, {figures['graph_queries']:,} questions in the graph. The "
            f"graph's own pass is {document['graph']:.3f} ms a document, by {figures['kept']}. Encoding the graph's "
            f"questions, once, is another {share:.2f} ms a document."
        )
    lines.append("| in the paper (one A100) | | | 0.46 : 0.41 | | 1.9 : 1.9 | |")
    return "\n".join([*lines, "", *notes, "", f"Revision: {(results['git_revision'] or 'unknown')[:7]}."]) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="As of same_labels.py.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="As of same_labels.py.")
def main(data: Path, work: Path) -> None:
    """Measure and write the result files."""
    keep_freed_memory()
    results = {
        "sets": {name: measured(OneSet.of(name, data, work)) for name in SETS},
        "processor": platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "efficiency.json", results)
    (RESULTS / "efficiency.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    show_progress()
    main()
