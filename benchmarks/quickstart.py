"""Two walks from a fresh clone, timed: the quickstart until a passage is explained, and own vectors until the explorer.

    .venv/bin/python benchmarks/quickstart.py

Clones the checkout's last commit and does there what docs/start/install.md and docs/how-to/vectors.md say. Own vectors
are the quickstart's, saved as NumPy files. Then it runs the quickstart a second time, and times searches. Writes
results/quickstart.json and results/quickstart.md.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

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


SAVE = """
import numpy as np
from gnnretrieval.encoders.features import open_features
features = open_features("graphs/docstrings/features")
for side in ("passages", "queries"):
    np.save(f"{side}.npy", getattr(features, side))
"""
OWN_VECTORS = """
gnnretrieval encoder import graphs/docstrings/dataset --passages passages.npy --queries queries.npy --name my-api \
    --similarity cosine --out work/features
gnnretrieval graph build graphs/docstrings/dataset work/features --out work/graph
gnnretrieval train work/graph --out work/model
gnnretrieval embed work/model --out work/embeddings
gnnretrieval index build work/embeddings --out work/index
"""  # as in docs/how-to/vectors.md
PORT = 8431


def served(path: str, environment: Path, clone: Path) -> dict[str, float]:
    """Seconds until the explorer of an index answers, and until a passage that gained is explained in it."""
    begun = time.monotonic()
    command = [str(environment / "bin" / "gnnretrieval"), "serve", path, "--port", str(PORT)]
    server = subprocess.Popen(command, cwd=clone)
    try:
        while True:
            try:
                ask("/health")
                break
            except URLError:
                if server.poll() is not None or time.monotonic() - begun > 120:
                    raise
                time.sleep(0.1)
        answers = time.monotonic() - begun
        question = ask("/examples")["questions"][0]["question"]
        moved = ask("/compare", {"question": question, "k": 10})["gnn_encoder"][0]
        ask(f"/graph/neighbors?kind=passage&id={quote(moved['id'])}")
        return {"answers": answers, "explains": time.monotonic() - begun}
    finally:
        server.terminate()
        server.wait(timeout=10)


def ask(address: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """An answer of the server."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{PORT}{address}", data, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def own_vectors(clone: Path) -> dict[str, float]:
    """Seconds of installing into a new environment, of each command, and until the explorer answers."""
    subprocess.run([".venv/bin/python", "-c", SAVE], cwd=clone, check=True)
    environment = clone / "other-venv"
    install = timed([sys.executable, "-m", "venv", str(environment)], clone)
    wanted = ["install", "-q", "-c", "constraints.txt", ".[cpu,serve]"]
    install += timed([str(environment / "bin" / "python"), "-m", "pip", *wanted], clone)
    script = f"set -e\nPATH={environment / 'bin'}:$PATH\n{OWN_VECTORS}"
    commands = timed(["bash", "-c", script], clone)
    answers = served("work/index", environment, clone)["answers"]
    return {"install": install, "commands": commands, "served": answers}


def timed(command: list[str], directory: Path) -> float:
    """Seconds that a command takes; its output goes to that of this process."""
    start = time.monotonic()
    subprocess.run(command, cwd=directory, check=True)
    return time.monotonic() - start


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[-1]}


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    gnn, dual = results["search_ms"]["index"], results["search_ms"]["index-dual-encoder"]
    own = results["own_vectors_s"]
    explained = results["from_clone_to_table_s"] + results["explained_s"]
    return "\n".join(
        [
            "# The quickstart's times",
            "",
            "Regenerate: `.venv/bin/python benchmarks/quickstart.py`",
            "",
            f"On {results['cores']} cores, by PyTorch's CPU build ({results['versions']['torch']}). Times are the",
            "machine's, without those of a person who reads and types.",
            "",
            "| From a fresh clone, as [install](../../docs/start/install.md) says | |",
            "|---|---|",
            f"| install | {results['install_s']:.0f} s |",
            f"| quickstart | {results['quickstart_s']:.0f} s |",
            f"| from clone to table | {results['from_clone_to_table_s']:.0f} s |",
            f"| serve, until the explorer says why a passage moved | {results['explained_s']:.1f} s |",
            f"| **from clone to why a passage moved** | **{explained:.0f} s** |",
            f"| quickstart again | {results['again_s']:.1f} s |",
            f"| search, GNN-encoder, median (95th percentile) | {gnn['median']:.1f} ({gnn['p95']:.1f}) ms |",
            f"| search, dual-encoder, median (95th percentile) | {dual['median']:.1f} ({dual['p95']:.1f}) ms |",
            "",
            "| From files of vectors, as [its how-to](../../docs/how-to/vectors.md) says | |",
            "|---|---|",
            f"| a new environment, with `.[cpu,serve]` | {own['install']:.0f} s |",
            f"| import, graph, training, embeddings, index | {own['commands']:.0f} s |",
            f"| serve, until the explorer answers | {own['served']:.1f} s |",
            f"| **from vectors to a served explorer** | **{sum(own.values()):.0f} s** |",
            "",
        ]
    )


@click.command()
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the clone in this new directory.")
def main(keep: Path | None) -> None:
    """Clone, run twice, search, and write the result files."""
    with tempfile.TemporaryDirectory() as temporary:
        clone = keep or Path(temporary) / "gnnretrieval"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        install = timed(["make", "install"], clone)
        first = timed(["make", "quickstart"], clone)
        explained = served("graphs/docstrings", clone / ".venv", clone)["explains"]
        again = timed(["make", "quickstart"], clone)
        own = own_vectors(clone)
        searched = subprocess.run(
            [".venv/bin/python", "-c", SEARCHES], cwd=clone, check=True, capture_output=True, text=True
        )
        latency = {name: percentiles(values) for name, values in json.loads(searched.stdout).items()}
    results: dict[str, Any] = {
        "install_s": round(install, 1),
        "quickstart_s": round(first, 1),
        "from_clone_to_table_s": round(install + first, 1),
        "explained_s": round(explained, 1),
        "again_s": round(again, 1),
        "own_vectors_s": {name: round(seconds, 1) for name, seconds in own.items()},
        "search_ms": {name: {key: round(ms, 1) for key, ms in values.items()} for name, values in latency.items()},
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "quickstart.json", results)
    page = markdown(results)
    (RESULTS / "quickstart.md").write_text(page, encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    main()
