"""``evaluate`` and ``compare`` at MS MARCO's size: time, processor time, and peak memory.

    .venv/bin/python benchmarks/evaluate.py

The commands measure two made-up runs of 7,000 queries × 1,000 passages, as many as MS MARCO's dev set has. Each command
runs in a separate process. Writes results/evaluate.json and results/evaluate.md.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np

from gnnretrieval.progress import progress, say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
PASSAGES, QUERIES, DEPTH = 200_000, 7_000, 1_000
SHALLOW = "RR@10,nDCG@10,R@1,R@5,R@20,R@100"
WHOLE = "AP,RR,nDCG,Bpref,Rprec,Judged@10,R@1000"


def write_dataset(directory: Path, passages: int, queries: int) -> None:
    """Write passages of 60 made-up words, and queries with one of the words as answer and one relevant passage each."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(20_000)])
    with (directory / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, passages, 10_000):
            rows = range(start, min(start + 10_000, passages))
            texts = words[rng.zipf(1.2, (len(rows), 60)) % len(words)].tolist()
            file.writelines(
                f'{{"_id": "{row}", "title": "", "text": "{" ".join(text)}"}}\n'
                for row, text in zip(rows, texts, strict=True)
            )
    with (directory / "queries.jsonl").open("w", encoding="utf-8") as file:
        for row in range(queries):
            record = {"_id": str(10**6 + 7 * row), "text": f"what is {row}", "metadata": {"answers": [f"w{row}"]}}
            file.write(json.dumps(record) + "\n")
    (directory / "qrels").mkdir()
    lines = (f"{10**6 + 7 * row}\t{row * 17 % passages}\t1\n" for row in range(queries))
    (directory / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")


def write_files(directory: Path, queries: int) -> dict[str, Path]:
    """Write the dataset and the runs; returns the runs' paths by kind."""
    write_dataset(directory, PASSAGES, queries)
    return write_runs(directory, PASSAGES, queries, DEPTH)


def write_runs(directory: Path, passages: int, queries: int, depth: int) -> dict[str, Path]:
    """Write two TREC runs, and the first one also in the formats of other tools; returns their paths by kind."""
    names = {"TREC": "a.run", "other": "b.run", "gzipped": "a.run.gz", "MS MARCO's columns": "a.tsv", "JSON": "a.json"}
    paths = {kind: directory / name for kind, name in names.items()}
    rng = np.random.default_rng(1)
    as_json: dict[str, dict[str, float]] = {}
    with (
        paths["TREC"].open("w") as trec,
        paths["other"].open("w") as other,
        gzip.open(paths["gzipped"], "wt") as zipped,
        paths["MS MARCO's columns"].open("w") as columns,
        progress("writing runs", queries, "queries") as meter,
    ):
        for row in range(queries):
            query = 10**6 + 7 * row
            for file in (trec, other):
                drawn = rng.integers(passages, size=2 * depth)
                drawn[rng.integers(depth)] = row * 17 % passages
                scores = np.sort(rng.random(depth, dtype=np.float32))[::-1]
                pairs = list(zip(list(dict.fromkeys(drawn.tolist()))[:depth], scores.tolist(), strict=True))
                lines = [f"{query} Q0 {id_} {n} {score:.9g} made-up\n" for n, (id_, score) in enumerate(pairs, 1)]
                file.writelines(lines)
                if file is trec:
                    zipped.writelines(lines)
                    columns.writelines(f"{query}\t{id_}\t{n}\n" for n, (id_, _) in enumerate(pairs, 1))
                    as_json[str(query)] = {str(id_): score for id_, score in pairs}
            meter.advance()
    paths["JSON"].write_text(json.dumps(as_json), encoding="utf-8")
    return paths


def measure(*words: object) -> dict[str, float]:
    """Run one command; returns its time, processor time and peak memory."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "gnnretrieval", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return {
        "seconds": time.monotonic() - begun,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    queries, load = results["queries"], results["load_before"]
    busy = f" The processor was shared with about {load:.0f} other processes: its seconds say more than the time."
    lines = [
        "# Measuring and comparing runs",
        "",
        f"Regenerate: `.venv/bin/python benchmarks/evaluate.py{f' --queries {queries}' if queries != QUERIES else ''}`",
        "",
        f"Made-up runs of {queries:,} queries × {results['depth']:,} passages, of {PASSAGES:,} passages, "
        f"{results['processors']} cores; from the command's start to its end.{busy if load > 1 else ''}",
        "",
        "| command | time | of processor | most memory |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name} | {row['seconds']:.1f} s | {row['processor_seconds']:.1f} s | "
            f"{row['peak_bytes'] / 2**20:.0f} MiB |"
            for name, row in results["commands"].items()
        ),
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--queries", type=click.IntRange(1), default=QUERIES, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Where the files go (default: a temporary directory).")
def main(queries: int, work: Path | None) -> None:
    """Write the files, run the commands, and write the result files."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=work) as place:
        data = Path(place)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # a command's peak is never below its parent's
            runs = pool.submit(write_files, data, queries).result()
        load = os.getloadavg()[0]
        first, usual = ("evaluate", runs["TREC"], "--data", data), ("--data", data, "--measures", SHALLOW)
        commands: dict[str, tuple[object, ...]] = {
            f"evaluate: {SHALLOW}": ("evaluate", runs["TREC"], *usual),
            f"evaluate: {WHOLE}": (*first, "--measures", WHOLE),
            "evaluate: Answer@20, Answer@100": (*first, "--measures", "Answer@20,Answer@100"),
            **{
                f"evaluate, {kind}": ("evaluate", runs[kind], *usual)
                for kind in ("gzipped", "MS MARCO's columns", "JSON")
            },
            "compare, two runs": ("compare", runs["TREC"], runs["other"], *usual, "--randomisation", "--changed", "5"),
        }
        for name, words in commands.items():
            figures[name] = measure(*words)
            say(f"{name}: {figures[name]['seconds']:.1f} s, {figures[name]['processor_seconds']:.1f} s of processor")
    results = {
        "commands": figures,
        "queries": queries,
        "depth": DEPTH,
        "load_before": load,
        "versions": library_versions(),
        "git_revision": git_revision(),
        "processors": os.cpu_count(),
    }
    write_json(RESULTS / "evaluate.json", results)
    page = markdown(results)
    (RESULTS / "evaluate.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    show_progress()
    main()
