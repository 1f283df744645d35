"""``data inspect`` at a million passages: time, peak memory, and the share of near-duplicates that it finds.

    .venv/bin/python benchmarks/data_inspect.py

Writes a dataset of made-up passages of 56 words, as long as MS MARCO's. One passage in a hundred repeats an earlier
one, and one in a hundred repeats an earlier one with a few words changed. The command inspects it in a separate
process. The similarity of each of these pairs is computed from its texts, so the number of near-duplicates is known.
Writes results/data_inspect.json and results/data_inspect.md.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.inspection.near_texts import NEAR, similarity
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.progress import progress, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
PASSAGES = 1_000_000
WORDS, LENGTH, QUERIES = 20_000, 56, 50_000
_BLOCK = 10_000


def write_dataset(directory: Path, passages: int) -> dict[str, int]:
    """Write the dataset; returns the numbers of its ``repeated`` and ``near`` duplicates."""
    rng = np.random.default_rng(0)
    words = np.array(["".join(rng.choice(list("aeioubdgklmnprst"), rng.integers(2, 11))) for _ in range(WORDS)])
    hidden = {"repeated": 0, "near": 0}
    before: list[str] = []

    def records() -> Any:
        with progress("writing passages", passages, "passages") as meter:
            for start in range(0, passages, _BLOCK):
                drawn = words[rng.zipf(1.3, (min(_BLOCK, passages - start), LENGTH)) % WORDS].tolist()
                for number, text in enumerate(map(" ".join, drawn)):
                    if before and number % 100 == 0:
                        text = before[number + 7]
                        hidden["repeated"] += 1
                    elif before and number % 100 == 50:
                        changed = before[number + 9].split()
                        for place in rng.integers(LENGTH, size=rng.integers(1, 5)):
                            changed[place] = str(words[rng.integers(WORDS)])
                        text = " ".join(changed)
                        hidden["near"] += NEAR <= similarity(text, before[number + 9]) < 1
                    drawn[number] = text
                    yield Passage(f"{start + number}", "", text), {}
                before[:] = drawn
                meter.advance(len(drawn))

    directory.mkdir()
    write_passages(directory / "corpus.jsonl", records())
    questions = words[rng.integers(WORDS, size=(QUERIES, 6))].tolist()
    queries = [Query(f"q{row}", f"what is {' '.join(questions[row])}") for row in range(QUERIES)]
    write_queries(directory / "queries.jsonl", ((query, {}) for query in queries))
    for name, rows in (("train", range(QUERIES - 5000)), ("test", range(QUERIES - 5000, QUERIES))):
        qrels = (Qrel(f"q{row}", f"{row * 17 % passages}", 1) for row in rows)
        write_qrels(directory / "qrels" / f"{name}.tsv", qrels)
    return hidden


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    passages, hidden, detected = results["passages"], results["hidden"], results["found"]
    option = f" --passages {passages}" if passages != PASSAGES else ""
    lines = [
        "# Inspecting a dataset",
        "",
        f"Regenerate: `.venv/bin/python benchmarks/data_inspect.py{option}`",
        "",
        f"{passages:,} made-up passages of {LENGTH} words ({results['bytes_in'] / 1e9:.2f} GB), "
        f"{results['queries']:,} queries, {results['processors']} cores:",
        "",
        "| time | processor time | most memory | repeated texts found | near-duplicate pairs found |",
        "| ---: | ---: | ---: | ---: | ---: |",
        f"| {results['seconds']:.0f} s | {results['processor_seconds']:.0f} s | "
        f"{results['peak_bytes'] / 2**20:.0f} MiB | {detected['repeated']:,} of {hidden['repeated']:,} | "
        f"{detected['pairs']:,} of {hidden['near']:,} |",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--passages", type=click.IntRange(10_000), default=PASSAGES, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Where the files go (default: a temporary directory).")
def main(passages: int, work: Path | None) -> None:
    """Write the dataset, inspect it, and write the result files."""
    with tempfile.TemporaryDirectory(dir=work) as place:
        dataset = Path(place) / "dataset"
        hidden = write_dataset(dataset, passages)
        size = (dataset / "corpus.jsonl").stat().st_size
        command = [sys.executable, "-m", "gnnretrieval", "data", "inspect", str(dataset), "--json"]
        begun = time.monotonic()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds = time.monotonic() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, processor = used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
    figures = json.loads(done.stdout)
    near = figures["near_duplicates"]["passages"]
    results = {
        "passages": passages,
        "queries": QUERIES,
        "bytes_in": size,
        "seconds": seconds,
        "processor_seconds": processor,
        "peak_bytes": peak,
        "hidden": hidden,
        "found": {"repeated": figures["duplicate_passages"], "pairs": near["pairs"]},
        "threshold": NEAR,
        "versions": library_versions(),
        "git_revision": git_revision(),
        "processors": os.cpu_count(),
    }
    write_json(RESULTS / "data_inspect.json", results)
    page = markdown(results)
    (RESULTS / "data_inspect.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    show_progress()
    main()
