"""`gnnretrieval serve` under load, killed under load, and sent malformed requests; and what the graph costs a question.

    .venv/bin/pip install --constraint constraints.txt '.[serve]' schemathesis
    .venv/bin/python benchmarks/serve.py

Runs the quickstart first, unless a run is given. Then, with each server in a separate process on the loopback address:

- the same questions to the GNN-encoder and to the dual-encoder in turn, over HTTP;
- 1,000 questions, 16 at a time, with and without batches in turn;
- SIGKILL under load, and the same command again: seconds until the first question is answered;
- at least 5,000 malformed requests that schemathesis generates from the OpenAPI description.

Writes results/serve.json and results/serve.md.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from gnnretrieval.data import Dataset
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
REQUESTS, AT_ONCE, ROUNDS, PAIRS, KILLS, MALFORMED = 1000, 16, 3, 2000, 5, 5000
PARTS = ("with_and_without", "load", "killed", "malformed")
BATCHING = {
    "one by one": {"batch_size": 1, "batch_wait": 0.0},
    "batches of 16, no wait": {"batch_size": 16, "batch_wait": 0.0},
    "batches of 16, 1 ms wait (default)": {},
    "batches of 16, 5 ms wait": {"batch_size": 16, "batch_wait": 0.005},
}
# As `gnnretrieval serve`, with settings that it has no options for.
CHILD = """
import json, sys
import uvicorn
from gnnretrieval import Retriever
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.serve.connections import Limits, protocol_with
retriever = Retriever.open(sys.argv[1])
retriever.search("warm up"), retriever.compare("warm up")
settings = ServeSettings(**json.loads(sys.argv[3]))
retriever.keep_open(settings.in_memory)
protocol = protocol_with(Limits(settings.max_connections, head=10, request=30, answer=30))
app = create_app(retriever, settings)
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False, http=protocol, ws="none")
"""


class Client:
    """A client with one connection that stays open."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, question: str, **how: Any) -> tuple[float, dict[str, Any]]:
        """Ask a question; returns seconds, and the answer."""
        body = json.dumps({"question": question, "k": 10, **how})
        begun = time.perf_counter()
        self.connection.request("POST", "/search", body, {"content-type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        seconds = time.perf_counter() - begun
        if response.status != 200:
            raise OSError(f"{response.status}: {text!r}")
        return seconds, json.loads(text)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def wait_for(port: int, question: str) -> dict[str, Any]:
    """Wait until a server answers a question; returns the answer."""
    while True:
        with suppress(OSError, http.client.HTTPException):
            return Client(port).ask(question)[1]
        time.sleep(0.02)


@contextmanager
def served(run: Path, settings: dict[str, Any]) -> Iterator[int]:
    """Run a server with these settings; yields its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", CHILD, str(run), str(port), json.dumps(settings)])
    try:
        wait_for(port, "warm up")
        yield port
    finally:
        process.terminate()
        process.wait()


def load(port: int, questions: list[str], count: int = REQUESTS) -> dict[str, Any]:
    """Ask ``count`` questions, ``AT_ONCE`` at a time; returns errors, latencies and throughput."""
    numbers, lock = iter(range(count)), threading.Lock()
    seconds: list[float] = []
    errors: list[str] = []

    def work() -> None:
        client = Client(port)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                took, _ = client.ask(questions[number % len(questions)])
                seconds.append(took)
            except (OSError, http.client.HTTPException) as error:
                errors.append(repr(error))
                client = Client(port)

    begun = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for job in [pool.submit(work) for _ in range(AT_ONCE)]:
            job.result()
    whole = time.perf_counter() - begun
    p50, p99 = np.percentile(seconds, [50, 99]) if seconds else (0.0, 0.0)
    return {
        "requests": count,
        "errors": len(errors),
        "ms_p50": 1000 * float(p50),
        "ms_p99": 1000 * float(p99),
        "requests_per_second": len(seconds) / whole,
    }


def under_load(run: Path, questions: list[str]) -> dict[str, Any]:
    """Load a server with every way of batching in turn, in several rounds, after a warm-up; returns medians."""
    rounds_of: dict[str, list[dict[str, Any]]] = {name: [] for name in BATCHING}
    for number in range(ROUNDS):
        for name in list(BATCHING)[:: 1 if number % 2 == 0 else -1]:
            with served(run, BATCHING[name]) as port:
                load(port, questions, 100)
                rounds_of[name].append(load(port, questions))
            say(f"  {name}: {rounds_of[name][-1]}")
    return {
        name: {
            "requests": sum(each["requests"] for each in rounds),
            "errors": sum(each["errors"] for each in rounds),
            **{
                key: statistics.median(each[key] for each in rounds)
                for key in ("ms_p50", "ms_p99", "requests_per_second")
            },
            "rounds": rounds,
        }
        for name, rounds in rounds_of.items()
    }


def with_and_without(run: Path, questions: list[str]) -> dict[str, Any]:
    """The same questions to both systems in turn, one at a time: medians, and the ratio with a bootstrap interval."""
    took: dict[str, list[float]] = {"dual-encoder": [], "gnn-encoder": []}
    with served(run, {"batch_wait": 0.0}) as port:
        client = Client(port)
        for number in range(-20, PAIRS):
            question = questions[number % len(questions)]
            for system in list(took)[:: 1 if number % 2 else -1]:
                seconds, answer = client.ask(question, system=system)
                assert answer["system"] == system
                if number >= 0:
                    took[system].append(1000 * seconds)
    dual, gnn = (np.array(values) for values in took.values())
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(dual), size=(2000, len(dual)))
    ratios = np.median(gnn[drawn], axis=1) / np.median(dual[drawn], axis=1)
    return {
        "questions": PAIRS,
        "ms": {
            name: {"median": float(np.median(values)), "p95": float(np.percentile(values, 95))}
            for name, values in (("dual-encoder", dual), ("gnn-encoder", gnn))
        },
        "ratio": float(np.median(gnn) / np.median(dual)),
        "ratio_95": [float(value) for value in np.percentile(ratios, [2.5, 97.5])],
    }


def processor_seconds(pid: int) -> float:
    """Processor seconds that a process has used so far, without its waiting for a processor (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def killed(run: Path, questions: list[str]) -> dict[str, Any]:
    """Kill a server under load and start it again, several times; returns the seconds to its first answers."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "gnnretrieval", "serve", str(run), "--port", str(port)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    before = wait_for(port, questions[0])
    first, again, in_flight, same = time.perf_counter() - begun, [], [], True
    processor = [processor_seconds(process.pid)]
    for _ in range(KILLS):
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(load, port, questions, 400)
            time.sleep(1.0)
            process.send_signal(signal.SIGKILL)
            process.wait()
            in_flight.append(loading.result()["errors"] > 0)
        begun = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        answer = wait_for(port, questions[0])
        again.append(time.perf_counter() - begun)
        processor.append(processor_seconds(process.pid))
        same &= answer["hits"] == before["hits"]
    process.terminate()
    process.wait()
    return {
        "kills": KILLS,
        "killed_in_mid_load": sum(in_flight),
        "seconds_to_first_answer": first,
        "seconds_to_first_answer_after_kill": again,
        "processor_seconds": processor,
        "same_answers": same,
    }


def malformed(run: Path, questions: list[str]) -> dict[str, Any]:
    """Send malformed requests by schemathesis; returns the server's counts of its answers."""
    program = Path(sys.executable).with_name("schemathesis")
    with served(run, {}) as port, tempfile.TemporaryDirectory() as place:
        for seed in itertools.count():
            command = [
                *(str(program), "run", f"http://127.0.0.1:{port}/openapi.json", "--mode", "negative"),
                *("--phases", "coverage,fuzzing", "--checks", "not_a_server_error", "--max-examples", "1000"),
                *("--seed", str(seed), "--generation-database", "none", "--suppress-health-check", "all", "--no-color"),
            ]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True)
            metrics = Client(port).connection
            metrics.request("GET", "/metrics")
            text = metrics.getresponse().read().decode()
            statuses: Counter[str] = Counter()
            for status, count in re.findall(r'gnnretrieval_requests_total\{[^}]*status="(\d+)"\} (\S+)', text):
                statuses[status] += int(float(count))
            say(f"  seed {seed}: {dict(statuses)}, schemathesis {done.returncode}")
            if sum(statuses.values()) >= MALFORMED or done.returncode not in (0, 1):
                break
        wait_for(port, questions[0])
    return {
        "requests": sum(statuses.values()),
        "by_status": dict(sorted(statuses.items())),
        "server_errors": sum(count for status, count in statuses.items() if status.startswith("5")),
        "schemathesis": done.stdout.splitlines()[-1].strip("= "),
    }


def markdown(results: dict[str, Any]) -> str:
    """The tables as a page."""
    both, load_, kill, bad = results["with_and_without"], results["load"], results["killed"], results["malformed"]
    low, high = both["ratio_95"]
    rows = [
        f"| {name} | {row['ms_p50']:.0f} | {row['ms_p99']:.0f} | {row['requests_per_second']:.0f} | {row['errors']} |"
        for name, row in load_.items()
    ]
    again = kill["seconds_to_first_answer_after_kill"]
    statuses = ", ".join(f"{count:,} × {status}" for status, count in bad["by_status"].items())
    lines = [
        "# The server",
        "",
        "Regenerate: `.venv/bin/python benchmarks/serve.py`",
        "",
        f"The quickstart's {results['passages']:,} passages and test questions, all-MiniLM-L6-v2, "
        f"{results['processors']} cores, which the clients share. In the minutes before each part the machine had a "
        "load of "
        f"{', '.join(f'{value:.0f}' for value in results['load_before'].values())}: above 0, times are longer than on "
        "an idle machine.",
        "",
        "## A question with the graph and without",
        "",
        f"{both['questions']} questions to both indexes by turns, one at a time, over HTTP, encoding included.",
        "",
        "| | median ms | 95th percentile |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {ms['median']:.2f} | {ms['p95']:.2f} |" for name, ms in both["ms"].items()),
        f"| ratio of medians (95 % interval) | {both['ratio']:.3f} ({low:.3f} … {high:.3f}) | |",
        "",
        f"## {REQUESTS:,} questions, {AT_ONCE} at a time",
        "",
        f"Medians of {ROUNDS} rounds by turns; milliseconds as the client sees them; errors of all rounds.",
        "",
        "| | p50 ms | p99 ms | questions a second | errors |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
        "",
        "## Killed in mid-load",
        "",
        f"SIGKILL {kill['kills']} times, {kill['killed_in_mid_load']} with questions in flight. The same command again "
        f"answers its first question after {min(again):.1f} to {max(again):.1f} s (the very first start: "
        f"{kill['seconds_to_first_answer']:.1f} s), {'with the same answer' if kill['same_answers'] else 'OTHERWISE'}; "
        f"{statistics.median(kill['processor_seconds']):.1f} s of it are the server's own on a processor, nearly "
        "all of it importing torch, transformers and sentence-transformers; the rest it waited for one.",
        "",
        "## Malformed requests",
        "",
        f"{bad['requests']:,} requests that schemathesis made to break the OpenAPI description: {statuses}. Server "
        f"errors: {bad['server_errors']}.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--run", "run", type=click.Path(path_type=Path), help="What quickstart made (default: it is made now).")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Measure this part again; the others stay.")
def main(run: Path | None, only: tuple[str, ...]) -> None:
    """Measure and write the result files."""
    jobs = {"with_and_without": with_and_without, "load": under_load, "killed": killed, "malformed": malformed}
    kept = json.loads((RESULTS / "serve.json").read_text(encoding="utf-8")) if only else {"load_before": {}}
    with tempfile.TemporaryDirectory() as temporary:
        if run is None:
            run = Path(temporary) / "docstrings"
            subprocess.run([sys.executable, "-m", "gnnretrieval", "quickstart", "--out", str(run)], check=True)
        dataset = Dataset.open(run / "dataset")
        questions = [query.text for query in dataset.queries_of("test")]
        results: dict[str, Any] = kept | {"passages": len(dataset.passage_ids), "processors": os.cpu_count()}
        for name in only or PARTS:
            results["load_before"][name] = os.getloadavg()[1]
            say(name)
            results[name] = jobs[name](run, questions)
            say(json.dumps(results[name])[:600])
    results |= {"dataset": dataset.provenance(), "versions": library_versions(), "git_revision": git_revision()}
    write_json(RESULTS / "serve.json", results)
    (RESULTS / "serve.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    show_progress()
    main()
