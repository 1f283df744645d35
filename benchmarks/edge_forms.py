"""Edge vectors of a cross-encoder as float16, int8 and projected: bytes, and RR@10 of GNN-encoders trained on them.

    .venv/bin/python benchmarks/edge_forms.py --work DIRECTORY

Uses the docstring corpus, which the script generates. The project ships no cross-encoder, so one is trained first:
all-MiniLM-L6-v2 with a new head, on training pairs and neighbours that are not relevant. Its vectors are kept as
float16; the other forms are made from these. A GNN-encoder is trained over each graph, and its epoch and context scale
are chosen on dev; RR@10 is reported on test, with a paired t-test against float16. Writes results/edge_forms.json and
results/edge_forms.md; artifacts in DIRECTORY are reused.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.data.docstring_corpus.corpus import make_docstring_corpus
from gnnretrieval.encoders import EncoderSettings
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.evaluation import mean, paired_test, per_query
from gnnretrieval.graph import Graph, GraphSettings, build_graph
from gnnretrieval.index import build_index
from gnnretrieval.index.search import index_run
from gnnretrieval.mining import sample_hard_negatives
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import progress, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

RESULTS = Path(__file__).resolve().parent / "results"
CHEAP = ("score", "reciprocal_rank", "bm25")
TOKENS = 128
FORMS: dict[str, dict[str, Any]] = {
    "no edge vectors": {},
    "float16": {"edge_vectors": "cross-encoder"},
    "int8": {"edge_vectors": "file", "edge_form": "int8"},
    "64 dimensions (PCA)": {"edge_vectors": "file", "edge_dimensions": 64},
    "16 dimensions (PCA), int8": {"edge_vectors": "file", "edge_dimensions": 16, "edge_form": "int8"},
}


def train_cross_encoder(store: Graph, out: Path, most: int, batch: int = 32, learning_rate: float = 1e-4) -> None:
    """Train all-MiniLM-L6-v2 with a new head, and write it to ``out``.

    It makes one pass over at most ``most`` pairs, drawn from the training pairs and, for each query, one neighbour that
    is not relevant.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    place = find_checkpoint("sentence-transformers/all-MiniLM-L6-v2").directory
    model = AutoModelForSequenceClassification.from_pretrained(place, num_labels=1).train()
    tokenizer = AutoTokenizer.from_pretrained(place)
    rng = np.random.default_rng(0)
    negatives = [
        (query, int(passage), 0.0)
        for query in range(store.num_queries)
        for passage in sample_hard_negatives(store.neighbors, np.array([query]), store.labels, 1, rng)
    ]
    pairs = [(query, passage, 1.0) for query, passage in store.labels.tolist()] + negatives
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    steps = -(-min(most, len(pairs)) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, steps, pct_start=0.1)
    order = rng.permutation(len(pairs))[:most]
    with store.texts() as texts, progress("training the cross-encoder", len(order), "pairs") as meter:
        for start in range(0, len(order), batch):
            chosen = [pairs[number] for number in order[start : start + batch]]
            tokens = tokenizer(
                texts.texts_of_queries([query for query, _, _ in chosen]),
                texts.texts_of_passages([passage for _, passage, _ in chosen]),
                truncation=True,
                max_length=TOKENS,
                padding=True,
                return_tensors="pt",
            )
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(**tokens).logits[:, 0]
            wanted = torch.tensor([label for _, _, label in chosen])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), wanted)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            meter.advance(len(chosen), f"loss {loss.item():.3f}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def measure(
    name: str, options: dict[str, Any], work: Path, dataset: Dataset, features: Any, seeds: int, epochs: int
) -> dict[str, Any]:
    """Build, train and rank with one form; returns its figures, and RR@10 of each test query as the mean over seeds."""
    place = work / name.replace(" ", "-").replace("(", "").replace(")", "").replace(",", "")
    pairs = {"cross_encoder": str(work / "cross-encoder"), "pair_tokens": TOKENS}
    settings = GraphSettings(label_edges=False, edge_features=CHEAP, **pairs, **options)
    common: dict[str, Any] = {"overwrite": True}
    start = time.perf_counter()
    given = work / "float16" / "graph" / "edge_vectors.npy" if settings.edge_vectors == "file" else None
    graph = build_graph(dataset, features, settings, place / "graph", edge_file=given, **common)
    built = time.perf_counter() - start
    queries, judged = list(dataset.split("test")), dataset.split("test")
    vectors = features.queries[features.rows_of(queries)]
    values, chosen = [], []
    for seed in range(seeds):
        model = train_gnn(
            graph, dataset, features, TrainSettings(seed=seed, epochs=epochs), place / f"model-{seed}", **common
        )
        embeddings = embed_passages(model, graph, place / f"embeddings-{seed}", **common)
        index = build_index(embeddings, place / f"index-{seed}", **common)
        (of_seed,) = per_query(judged, index_run(index, queries, vectors, 100), ["RR@10"]).values()
        values.append(of_seed)
        chosen.append(model.meta["dev"]["chosen"])
    names = ("edge_features", "edge_vectors", "edge_scales", "edge_projection")
    sizes = [(graph.path / f"{part}.npy").stat().st_size for part in names if (graph.path / f"{part}.npy").is_file()]
    return {
        "form": name,
        "edge_dim": graph.edge_dim,
        "bytes": sum(sizes),
        "bytes_an_edge": sum(sizes) / (graph.num_queries * graph.k),
        "seconds_to_build": built,
        "dev": [point["RR@10"] for point in chosen],
        "chosen_on_dev": chosen,
        "RR@10": [mean({"RR@10": of_seed})["RR@10"] for of_seed in values],
        "per_query": {id_: float(np.mean([of_seed[id_] for of_seed in values])) for id_ in values[0]},
    }


def markdown(results: dict[str, Any]) -> str:
    """The figures as a page."""
    rows = "\n".join(
        f"| {row['form']} | {row['edge_dim']} | {row['bytes'] / 2**20:.1f} | {row['bytes_an_edge']:.0f} | "
        f"{100 * np.mean(row['dev']):.1f} | {100 * np.mean(row['RR@10']):.1f} "
        f"({', '.join(f'{100 * value:.1f}' for value in row['RR@10'])}) | "
        + (f"{100 * row['difference']:+.2f} (p = {row['p']:.2f}) |" if "p" in row else "– |")
        for row in results["forms"]
    )
    return f"""# Forms of edge vectors

Regenerate: `.venv/bin/python benchmarks/edge_forms.py --work DIRECTORY --seeds {results["seeds"]} --epochs {
        results["epochs"]
    } --pairs {results["pairs"]}`

The docstring corpus ({results["queries"]:,} training queries, k = 5), all-MiniLM-L6-v2 as it comes, cheap edge features
({", ".join(CHEAP)}) and the [CLS] vector of a cross-encoder trained on the same training pairs. RR@10 × 100, mean of
the seeds (each); the epoch and the context scale are chosen on dev; the difference to float16 is on test, over the
queries' means, with a paired t-test.

| form | width | MiB | bytes an edge | dev RR@10 | test RR@10 | against float16 |
|---|---:|---:|---:|---:|---:|---|
{rows}

AUC of the cross-encoder's probability on the graph's edges, labelled against not: {results["auc"]:.3f}.
"""


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory for what is made.")
@click.option("--seeds", type=click.IntRange(1), default=2, show_default=True, help="Training seeds of each form.")
@click.option("--epochs", type=click.IntRange(1), default=40, show_default=True, help="Epochs at most.")
@click.option(
    "--pairs", type=click.IntRange(1), default=10_000, show_default=True, help="To train the cross-encoder on."
)
def main(work: Path, seeds: int, epochs: int, pairs: int) -> None:
    """Measure the forms of edge vectors."""
    keep_freed_memory()
    dataset = Dataset.open(make_docstring_corpus(work / "dataset", summaries="question", overwrite=True).path)
    features = encode_dataset(dataset, EncoderSettings(), work / "features", overwrite=True)
    plain = build_graph(
        dataset,
        features,
        GraphSettings(label_edges=False, edge_features=CHEAP),
        work / "plain",
        overwrite=True,
    )
    if not (work / "cross-encoder" / "config.json").is_file():
        train_cross_encoder(plain, work / "cross-encoder", pairs)
    forms = [measure(name, options, work, dataset, features, seeds, epochs) for name, options in FORMS.items()]
    reference = next(row for row in forms if row["form"] == "float16")
    for row in forms:
        if row is not reference:
            test = paired_test(row["per_query"], reference["per_query"])
            row |= {"difference": test.difference, "p": test.p}
    for row in forms:
        del row["per_query"]
    results = {
        "dataset": dataset.provenance(),
        "queries": plain.num_queries,
        "seeds": seeds,
        "epochs": epochs,
        "pairs": pairs,
        "forms": forms,
        "auc": _auc(work / "float16" / "graph"),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "edge_forms.json", results)
    (RESULTS / "edge_forms.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


def _auc(path: Path) -> float:
    from sklearn.metrics import roc_auc_score

    from gnnretrieval.graph import open_graph

    store = open_graph(path)
    labelled = np.isin(
        np.arange(store.num_queries)[:, None] * store.num_passages + store.neighbors.astype(np.int64),
        store.labels[:, 0] * store.num_passages + store.labels[:, 1],
    )
    return float(roc_auc_score(labelled.ravel(), np.asarray(store.array("probabilities")).ravel()))


if __name__ == "__main__":
    show_progress()
    main()
