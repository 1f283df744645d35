"""Time of the quickstart from a fresh clone, of a second run of it, and of a search.

    .venv/bin/python benchmarks/quickstart.py

Clones the checkout's last commit, runs `make quickstart` twice in the clone, then times searches there. Writes
results/quickstart.json and results/quickstart.md.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SEARCHES = """
import json, sys, time
from gnnretrieval.data import Dataset
from gnnretrieval.index import Retriever
from gnnretrieval.platform.memory import keep_freed_memory
keep_freed_memory()
questions = [query.text for query in Dataset.open("graphs/docstrings/dataset").queries_of("test")][:200]
milliseconds = {}
for name in ("index-dual-encoder", "index", "index-dual-encoder", "index"):
    searcher = Retriever.open(f"graphs/docstrings/{name}")
    for question in questions[:10]:
        searcher.search(question)
    for question in questions:
        start = time.perf_counter()
        searcher.search(question)
        milliseconds.setdefault(name, []).append(1000 * (time.perf_counter() - start))
print(json.dumps(milliseconds))
"""


def timed(command: list[str], directory: Path) -> float:
    """Seconds that a command takes; its output goes to that of this process."""
    start = time.monotonic()
    subprocess.run(command, cwd=directory, check=True)
    return time.monotonic() - start


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[-1]}


@click.command()
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the clone in this new directory.")
def main(keep: Path | None) -> None:
    """Clone, run twice, search, and write the result files."""
    with tempfile.TemporaryDirectory() as temporary:
        clone = keep or Path(temporary) / "gnnretrieval"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        install = timed(["make", "install"], clone)
        first = timed(["make", "quickstart"], clone)
        again = timed(["make", "quickstart"], clone)
        searched = subprocess.run(
            [".venv/bin/python", "-c", SEARCHES], cwd=clone, check=True, capture_output=True, text=True
        )
        latency = {name: percentiles(values) for name, values in json.loads(searched.stdout).items()}
    results: dict[str, Any] = {
        "install_s": round(install, 1),
        "quickstart_s": round(first, 1),
        "from_clone_to_table_s": round(install + first, 1),
        "again_s": round(again, 1),
        "search_ms": {name: {key: round(ms, 1) for key, ms in values.items()} for name, values in latency.items()},
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    gnn, dual = results["search_ms"]["index"], results["search_ms"]["index-dual-encoder"]
    table = "\n".join(
        [
            "# The quickstart's times",
            "",
            "Regenerate: `.venv/bin/python benchmarks/quickstart.py`",
            "",
            f"On {results['cores']} cores, from a fresh clone, PyTorch's CPU build ({results['versions']['torch']}):",
            "",
            "| | |",
            "|---|---|",
            f"| install | {results['install_s']:.0f} s |",
            f"| quickstart | {results['quickstart_s']:.0f} s |",
            f"| from clone to table | {results['from_clone_to_table_s']:.0f} s |",
            f"| quickstart again | {results['again_s']:.1f} s |",
            f"| search, GNN-encoder, median (95th percentile) | {gnn['median']:.1f} ({gnn['p95']:.1f}) ms |",
            f"| search, dual-encoder, median (95th percentile) | {dual['median']:.1f} ({dual['p95']:.1f}) ms |",
            "",
        ]
    )
    write_json(RESULTS / "quickstart.json", results)
    (RESULTS / "quickstart.md").write_text(table, encoding="utf-8")
    click.echo(table)


if __name__ == "__main__":
    main()
