"""Speed of encoding passages and pairs, compared with sentence-transformers on this machine's CPU.

    .venv/bin/python benchmarks/encoding.py --data DIRECTORY

DIRECTORY is squad-open (BEIR layout; passages of the domain ``squad``). In every round the systems encode the same
texts in turn, so that a change of the machine's speed affects all of them; medians over the rounds are reported. The
cross-encoder is all-MiniLM-L6-v2 with a new classifier: its scores mean nothing, but its speed is that of any
cross-encoder of this shape. Writes results/encoding.json and results/encoding.md.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from gnnretrieval.encoders import DualEncoder, EncoderSettings, find_checkpoint
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, sha256_of_file, write_json

RESULTS = Path(__file__).resolve().parent / "results"
CHECKPOINT = "sentence-transformers/all-MiniLM-L6-v2"
MAX_TOKENS = 192
PAIRS_PER_QUERY = 25  # the graph's k


def texts_of(path: Path, count: int, seed: int = 0) -> list[str]:
    """``count`` texts of the domain ``squad``, titles before passages, drawn at random."""
    with path.open(encoding="utf-8") as file:
        records = [record for line in file if (record := json.loads(line))["metadata"].get("domain") == "squad"]
    rows = np.random.default_rng(seed).permutation(len(records))[:count]
    return [f"{records[row].get('title', '')} {records[row]['text']}".strip() for row in rows]


def product_speed() -> float:
    """GFLOP/s of bfloat16 matrix products of the feed-forward layer's shape."""
    rows, weight = torch.randn(512, 384).bfloat16(), torch.randn(1536, 384).bfloat16()
    bias = torch.randn(1536).bfloat16()
    start = time.perf_counter()
    for _ in range(300):
        F.linear(rows, weight, bias)
    return 300 * 2 * 512 * 384 * 1536 / (time.perf_counter() - start) / 1e9


def gflop(lengths: NDArray[np.int64]) -> float:
    """GFLOP of MiniLM's six layers over texts of ``lengths`` tokens ``(n,)``, without padding."""
    per_token = 2 * (4 * 384 * 384 + 2 * 384 * 1536)
    return float((6 * (lengths * per_token + 4 * lengths**2 * 384)).sum() / 1e9)


def in_rounds(systems: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each system in each round, and its last result; a first round to warm up is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    given: dict[str, Any] = {}
    for number in range(repeats + 1):
        for name, run in systems.items():
            start = time.perf_counter()
            given[name] = run()
            if number:
                seconds[name].append(time.perf_counter() - start)
                say(f"round {number}: {name} {seconds[name][-1]:.1f} s")
    return seconds, given


def cosines(vectors: NDArray[np.float32], expected: NDArray[np.float32]) -> dict[str, float]:
    """Smallest and mean cosine between the rows of two arrays ``(n, d)``."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    values = (vectors * expected).sum(1) / lengths
    return {"min": float(values.min()), "mean": float(values.mean())}


def table(seconds: dict[str, list[float]], count: int, work: float, speed: float) -> Iterator[dict[str, Any]]:
    """A row for every system; ratios are to the row ``sentence-transformers, bfloat16``, round by round."""
    theirs = seconds["sentence-transformers, bfloat16"]
    for name, values in seconds.items():
        row: dict[str, Any] = {"system": name, "per_second": count / statistics.median(values), "seconds": values}
        row["ratio"] = statistics.median(other / own for other, own in zip(theirs, values, strict=True))
        row["share_of_product_speed"] = work / statistics.median(values) / speed
        yield row


def token_counts(tokenizer: Any, *texts: list[str]) -> NDArray[np.int64]:
    """Number of tokens of each text, or of each pair of texts ``(n,)``."""
    return np.array([len(ids) for ids in tokenizer(*texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]])


def measure_passages(texts: list[str], repeats: int) -> dict[str, Any]:
    """Measure the encoding of passages."""
    from sentence_transformers import SentenceTransformer

    directory = str(find_checkpoint(CHECKPOINT).directory)
    theirs = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        theirs[name] = SentenceTransformer(directory, device="cpu", model_kwargs={"dtype": dtype})
        theirs[name].max_seq_length = MAX_TOKENS
    ours = DualEncoder(EncoderSettings(checkpoint=CHECKPOINT, max_tokens=MAX_TOKENS, precision="bfloat16"))
    speeds: list[float] = []
    systems: dict[str, Callable[[], Any]] = {
        "gnnretrieval, bfloat16": lambda: ours.encode(texts, "passage"),
        "sentence-transformers, bfloat16": lambda: theirs["bfloat16"].encode(texts, show_progress_bar=False),
        "sentence-transformers as it comes (float32)": lambda: theirs["float32"].encode(texts, show_progress_bar=False),
    }
    seconds, vectors = in_rounds({"products": lambda: speeds.append(product_speed()), **systems}, repeats)
    del seconds["products"]
    lengths = token_counts(theirs["bfloat16"].tokenizer, texts)
    expected = vectors["sentence-transformers as it comes (float32)"]
    return {
        "passages": len(texts),
        "mean_tokens": float(lengths.mean()),
        "product_gflops": speeds[1:],
        "rows": list(table(seconds, len(texts), gflop(lengths), statistics.median(speeds[1:]))),
        "cosine_to_float32": {name: cosines(vectors[name], expected) for name in systems},
    }


def write_cross_encoder(directory: Path) -> Path:
    """Write MiniLM with a new classifier of one label to ``directory``."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source = find_checkpoint(CHECKPOINT).directory
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(directory)
    AutoTokenizer.from_pretrained(source).save_pretrained(directory)
    return directory


def measure_pairs(queries: list[str], passages: list[str], repeats: int, work: Path) -> dict[str, Any]:
    """Measure the encoding of query-passage pairs, with ``PAIRS_PER_QUERY`` random passages for each query."""
    from sentence_transformers import CrossEncoder as Theirs

    directory = str(write_cross_encoder(work / "cross-encoder"))
    rng = np.random.default_rng(0)
    chosen = [rng.choice(len(passages), PAIRS_PER_QUERY, replace=False) for _ in queries]
    pairs = np.stack([np.repeat(np.arange(len(queries)), PAIRS_PER_QUERY), np.concatenate(chosen)], axis=1)
    joined = [(queries[query], passages[passage]) for query, passage in pairs]
    settings = {"checkpoint": directory, "max_tokens": MAX_TOKENS}
    ours, exact = (
        CrossEncoder(CrossEncoderSettings.parse({**settings, "precision": name})) for name in ("bfloat16", "float32")
    )
    theirs = {
        name: Theirs(directory, device="cpu", max_length=MAX_TOKENS, model_kwargs={"dtype": dtype})
        for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32))
    }
    speeds: list[float] = []
    systems: dict[str, Callable[[], Any]] = {
        "gnnretrieval, bfloat16": lambda: ours.encode_pairs(queries, passages, pairs),
        "sentence-transformers, bfloat16": lambda: theirs["bfloat16"].predict(joined, show_progress_bar=False),
    }
    seconds, given = in_rounds({"products": lambda: speeds.append(product_speed()), **systems}, repeats)
    del seconds["products"]
    lengths = token_counts(theirs["bfloat16"].tokenizer, *map(list, zip(*joined, strict=True)))
    scores = theirs["float32"].predict(joined, show_progress_bar=False)
    encoded = given["gnnretrieval, bfloat16"]
    return {
        "pairs": len(pairs),
        "mean_tokens": float(lengths.mean()),
        "product_gflops": speeds[1:],
        "rows": list(table(seconds, len(pairs), gflop(lengths), statistics.median(speeds[1:]))),
        "cosine_to_float32": {
            "gnnretrieval, bfloat16": cosines(encoded.vectors, exact.encode_pairs(queries, passages, pairs).vectors)
        },
        "largest_difference_of_probability_to_float32": {
            "gnnretrieval, bfloat16": float(np.abs(encoded.probabilities - scores).max()),
            "sentence-transformers, bfloat16": float(
                np.abs(given["sentence-transformers, bfloat16"].astype(np.float32) - scores).max()
            ),
        },
    }


def markdown(results: dict[str, Any]) -> str:
    """Both tables as a page."""
    lines = ["# Encoding", "", "Regenerate: `.venv/bin/python benchmarks/encoding.py --data DIRECTORY`", ""]
    for title, unit, part in (("Passages", "passages", "passages"), ("Query-passage pairs", "pairs", "pairs")):
        result = results[part]
        lines += [
            f"## {title}",
            "",
            f"| system | {unit}/s | times sentence-transformers | share of product speed | cosine to float32 |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in result["rows"]:
            cosine = result["cosine_to_float32"].get(row["system"])
            near = f"{cosine['min']:.5f}, {cosine['mean']:.5f}" if cosine else ""
            share = f"{100 * row['share_of_product_speed']:.0f}%"
            lines.append(f"| {row['system']} | {row['per_second']:.1f} | {row['ratio']:.2f} | {share} | {near} |")
        speed = statistics.median(result["product_gflops"])
        lines += [
            "",
            f"{result[part]} {unit} of {result['mean_tokens']:.0f} tokens on average (at most {MAX_TOKENS}); product "
            f"speed: {speed:.0f} GFLOP/s in bfloat16, measured in the same rounds; the share counts the arithmetic of "
            "a pass without padding. Cosines: smallest and mean.",
            "",
        ]
    lines.append(
        f"{CHECKPOINT}, medians of {results['repeats']} rounds, {results['cores']} cores. The cross-encoder is "
        "the same encoder with a fresh classifier."
    )
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True, help="The folder squad-open.")
@click.option("--passages", type=click.IntRange(100), default=2000, show_default=True)
@click.option("--pairs", type=click.IntRange(100), default=2000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(data: Path, passages: int, pairs: int, repeats: int) -> None:
    """Measure and write the result files."""
    torch.set_grad_enabled(False)
    corpus = texts_of(data / "corpus.jsonl", passages)
    queries = texts_of(data / "queries.jsonl", pairs // PAIRS_PER_QUERY)
    results: dict[str, Any] = {"passages": measure_passages(corpus, repeats)}
    with tempfile.TemporaryDirectory() as work:
        results["pairs"] = measure_pairs(queries, corpus[: 4 * len(queries)], repeats, Path(work))
    results |= {
        "checkpoint": CHECKPOINT,
        "checkpoint_hash": find_checkpoint(CHECKPOINT).hash,
        "dataset": {name: sha256_of_file(data / f"{name}.jsonl") for name in ("corpus", "queries")},
        "max_tokens": MAX_TOKENS,
        "repeats": repeats,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "encoding.json", results)
    (RESULTS / "encoding.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    show_progress()
    main()
