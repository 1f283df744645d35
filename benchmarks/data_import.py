"""``data import`` at MS MARCO's size: passages a second, and peak memory.

    .venv/bin/python benchmarks/data_import.py

Writes a collection of 8,841,823 made-up passages of 56 words, as long as MS MARCO's, with queries and judgements, plain
(3 GB) and gzipped. The command imports each in a separate process. Writes results/data_import.json and
results/data_import.md.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from gnnretrieval.progress import progress, say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
KINDS = ("plain", "gzipped")
PASSAGES, QUERIES = 8_841_823, 502_939
WORDS, LENGTH = 20_000, 56
_BLOCK = 10_000


def write_files(directory: Path, passages: int, queries: int) -> list[Path]:
    """Write MS MARCO's three files with made-up words; returns their paths."""
    rng = np.random.default_rng(0)
    words = np.array(["".join(rng.choice(list("aeioubdgklmnprst"), rng.integers(2, 11))) for _ in range(WORDS)])
    paths = [directory / name for name in ("collection.tsv", "queries.train.tsv", "qrels.train.tsv")]
    with paths[0].open("w", encoding="utf-8") as file, progress("writing passages", passages, "passages") as meter:
        for start in range(0, passages, _BLOCK):
            rows = range(start, min(start + _BLOCK, passages))
            drawn = words[rng.zipf(1.3, (len(rows), LENGTH)) % WORDS]
            file.writelines(f"{row}\t{' '.join(terms)}\n" for row, terms in zip(rows, drawn.tolist(), strict=True))
            meter.advance(len(rows))
    with paths[1].open("w", encoding="utf-8") as file:
        file.writelines(f"{row}\twhat is {words[row % WORDS]}\n" for row in range(queries))
    with paths[2].open("w", encoding="utf-8") as file:
        file.writelines(f"{row}\t0\t{row * 17 % passages}\t1\n" for row in range(queries))
    return paths


def zipped(path: Path) -> Path:
    """Replace a file by its gzipped version; returns its path."""
    target = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(target, "wb", compresslevel=1) as file:
        shutil.copyfileobj(source, file, 1 << 22)
    path.unlink()
    return target


def measure(files: list[Path], out: Path) -> dict[str, Any]:
    """Import the files; returns time, memory and counts."""
    command = [sys.executable, "-m", "gnnretrieval", "data", "import", *map(str, files), "--out", str(out)]
    begun, spent = time.monotonic(), _cpu_seconds()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, spent = time.monotonic() - begun, _cpu_seconds() - spent
    counts = json.loads((out / "meta.json").read_text(encoding="utf-8"))["counts"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # the largest child so far
    lines = done.stderr.count(" bytes")
    load = os.getloadavg()[0]  # over the last minute: other processes slow the import down
    return {
        "passages": counts["passages"],
        "seconds": seconds,
        "cpu_seconds": spent,
        "passages_per_second": counts["passages"] / seconds,
        "peak_bytes": peak,
        "lines_of_progress": lines,
        "load_average": load,
        "bytes_in": sum(file.stat().st_size for file in files),
    }


def _cpu_seconds() -> float:
    """Processor seconds of the finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    passages = results["plain"]["passages"]
    lines = [
        "# Importing MS MARCO",
        "",
        "Regenerate: `.venv/bin/python benchmarks/data_import.py"
        f"{f' --passages {passages}' if passages != PASSAGES else ''}`",
        "",
        f"{passages:,} made-up passages of {LENGTH} words, {results['processors']} cores; with their "
        "hashes. The load is the number of processes that wanted a core at the end: more than 1 are others, and times "
        "are longer for them.",
        "",
        "| files | in | time | of a core's | passages a second | most memory | load |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {kind} | {row['bytes_in'] / 1e9:.2f} GB | {row['seconds']:.0f} s | {row['cpu_seconds']:.0f} s | "
            f"{row['passages_per_second']:,.0f} | {row['peak_bytes'] / 2**20:.0f} MiB | {row['load_average']:.1f} |"
            for kind, row in results.items()
            if kind in KINDS
        ),
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--passages", type=click.IntRange(1), default=PASSAGES, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Where the files go (default: a temporary directory).")
def main(passages: int, work: Path | None) -> None:
    """Write the files, import them, and write the result files."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=work) as place:
        files = write_files(Path(place), passages, max(1, round(QUERIES * passages / PASSAGES)))
        for kind in KINDS:
            files = files if kind == "plain" else [zipped(file) for file in files]
            results[kind] = measure(files, Path(place) / "dataset")
            shutil.rmtree(Path(place) / "dataset")
            say(f"{kind}: {results[kind]['passages_per_second']:,.0f} passages/s")
    results |= {"versions": library_versions(), "git_revision": git_revision(), "processors": os.cpu_count()}
    write_json(RESULTS / "data_import.json", results)
    page = markdown(results)
    (RESULTS / "data_import.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    show_progress()
    main()
