"""Stages in shards and training over two hosts: the same result for any workers and after any kill; speed, and merging.

    .venv/bin/python benchmarks/scale_out.py --work DIRECTORY

The hosts are two network namespaces of this machine, each with a Ray node of one processor and an address of its own;
they share the file system. It wants root and iproute2. The texts are the docstring corpus, or its first passages. Each
part is kept in DIRECTORY; after an interruption, the same command continues. Writes results/scale_out.json and .md.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path
from typing import Any, Self

import click
import numpy as np
import scale_out_training
from numpy.typing import NDArray
from two_hosts import BIN, ENVIRONMENT, HOSTS, Hosts, call, on_host, processes

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.encoders.encoding_shards import EncodingShards
from gnnretrieval.encoders.features import open_features
from gnnretrieval.graph.edges.neighbor_shards import NeighborShards
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.platform.threads import one_thread
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.arrays import ArrayWriter, save_array
from gnnretrieval.storage.locks import beside
from gnnretrieval.storage.provenance import git_revision, write_json

RESULTS = Path(__file__).resolve().parent / "results"
ADDRESS = f"{HOSTS[0]}:6379"
SHARDS = 11
WORKERS = (1, 2, 3, 7)
STAGES = ("encoding", "top-k")
TARGETS = ("worker", "node", "driver")


def kept(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``measure`` returns, with the revision, kept in ``path`` for a later run of this script."""
    if not path.is_file():
        write_json(path, measure() | {"revision": git_revision() or "unknown"})
    return dict(json.loads(path.read_text("utf-8")))


class Cluster(Hosts):
    """Two hosts, each with a Ray node of one processor."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.start(0, "--head", "--include-dashboard=false")
        self.start(1, "--address", ADDRESS)
        return self

    def start(self, number: int, *words: str) -> None:
        """Start the Ray node of a host."""
        node = ("start", "--node-ip-address", HOSTS[number], "--num-cpus", 1, "--object-store-memory", 10**8)
        call(*on_host(number, BIN / "ray", *node, *words), check=True)

    def kill_node(self) -> None:
        """Kill all of the second host's Ray processes, and start its node again."""
        for process in processes(1):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(1)
        self.start(1, "--address", ADDRESS)

    def _take_down(self) -> None:
        call(BIN / "ray", "stop", "--force")
        super()._take_down()


def files_of(artifact: Path) -> dict[str, str]:
    """The sha256 of an artifact's files."""
    return dict(json.loads((artifact / "meta.json").read_text("utf-8"))["files"])


def workers() -> list[int]:
    """Processes that run a shard now, on both hosts."""
    found = []
    for process in (*processes(0), *processes(1)):
        with suppress(OSError):
            title = Path(f"/proc/{process}/cmdline").read_text("utf-8")
            if title.startswith(tuple(f"ray::{stage}" for stage in STAGES)):  # not Ray's own processes
                found.append(process)
    return found


class Trial:
    """A stage as a command, in a directory of its own."""

    def __init__(self, stage: str, data: Path, features: Path, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self.out = place / stage
        settings = ("--max-tokens", 64, "--window", 32)
        self.command = (
            ("encoder", "encode", data, "--out", self.out, *settings)
            if stage == "encoding"
            else ("graph", "build", data, features, "--out", self.out, "--k", 10)
        )
        self.files = "passages-*.npy" if stage == "encoding" else "rows-*.npy"

    def words(self, *more: object) -> list[str]:
        """The command on the first host."""
        return on_host(0, BIN / "gnnretrieval", *self.command, *more)

    def run(self, *more: object) -> dict[str, str]:
        """Run the command to its end; returns the sha256 of the artifact's files."""
        subprocess.run(self.words(*more), check=True, capture_output=True, env=ENVIRONMENT)
        return files_of(self.out)


def killed(
    trial: Trial, target: str, cluster: Cluster, after: int, delay: float, more: Sequence[object]
) -> dict[str, Any]:
    """Run a stage and kill something while a worker is at a shard; a killed driver's command is run again.

    Args:
        trial: The stage.
        target: What is killed.
        cluster: The hosts.
        after: Number of shards that are whole before.
        delay: Seconds from then to the kill.
        more: More words of the command.

    Returns:
        The sha256 of the files, whether a worker was at a shard, the number of shards that were whole at the kill, and
        how many of these were done again.
    """
    driver = subprocess.Popen(trial.words(*more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    shards = beside(trial.out, "shards")
    while driver.poll() is None and not (len(list(shards.rglob(trial.files))) >= after and workers()):
        time.sleep(0.01)
    time.sleep(delay)
    hit = bool(found := workers())
    whole = {file: file.stat().st_mtime_ns for file in shards.rglob("[!.]*.npy")}
    again: set[Path] = set()
    if target == "driver":
        driver.kill()
    elif target == "node":
        cluster.kill_node()
    elif found:
        with suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
    with watched(whole, again):
        _, error = driver.communicate()
        if target == "driver":
            trial.run(*more)
        elif driver.returncode:
            raise SystemExit(f"{target} killed after {after} shards: {error.decode()}")
    return {"files": files_of(trial.out), "hit": hit, "whole": len(whole), "again": len(again)}


@contextmanager
def watched(whole: dict[Path, int], again: set[Path]) -> Iterator[None]:
    """Collect which of the files are written again meanwhile."""
    import threading

    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for file, time_ns in whole.items():
                with suppress(FileNotFoundError):
                    if file.stat().st_mtime_ns != time_ns:
                        again.add(file)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def bytes_and_kills(data: Path, work: Path, kills: int) -> dict[str, Any]:
    """Equality of the bytes by workers and engine, and after kills; each trial is kept in ``work``."""
    found: dict[str, Any] = {}
    features = work / "features"
    ray = ("--shards", SHARDS, "--engine", "ray", "--address", ADDRESS)
    rng = random.Random(0)
    with Cluster() as cluster:
        for stage in STAGES:  # the second one reads the first one's result

            def trial(stage: str = stage) -> Trial:
                return Trial(stage, data, features, work / "trial")

            def whole(stage: str = stage) -> dict[str, Any]:
                one = Trial(stage, data, features, work / "trial")
                made = one.run()
                if stage == "encoding":
                    shutil.rmtree(features, ignore_errors=True)
                    one.out.rename(features)
                return {"files": made}

            wanted = kept(work / f"{stage}-files.json", whole)["files"]

            def equality(wanted: dict[str, str] = wanted, trial: Callable[[], Trial] = trial) -> dict[str, Any]:
                equal = {
                    f"{number} local": trial().run("--shards", SHARDS, "--workers", number) == wanted
                    for number in WORKERS
                }
                begun = time.monotonic()
                equal["ray, two hosts"] = trial().run(*ray) == wanted
                return {"equal": equal, "seconds": time.monotonic() - begun}

            of_stage = kept(work / f"{stage}-equal.json", equality)
            say(f"{stage}: {of_stage}")
            rows = []
            for number, target in product(range(kills), TARGETS):
                after, delay = rng.randrange(SHARDS - 1), rng.uniform(0, 0.3)

                def one(
                    target: str = target,
                    after: int = after,
                    delay: float = delay,
                    wanted: dict[str, str] = wanted,
                    trial: Callable[[], Trial] = trial,
                ) -> dict[str, Any]:
                    its = killed(trial(), target, cluster, after, delay, ray)
                    return {
                        "target": target,
                        "after": after,
                        "delay": delay,
                        "equal": its.pop("files") == wanted,
                        **its,
                    }

                rows.append(kept(work / f"{stage}-{target}-{number}.json", one))
                say(f"{stage}: {rows[-1]}")
            found[stage] = {**of_stage, "kills": rows}
    return found


def rate(files: list[Path], sizes: dict[str, int], running: int) -> float:
    """Rows a second, from the shards' times after each worker's first: without the start of the workers."""
    by_time = sorted(files, key=lambda file: file.stat().st_mtime_ns)
    first, last = by_time[running - 1], by_time[-1]
    rows = sum(sizes[file.name] for file in by_time[running:])
    return rows / ((last.stat().st_mtime_ns - first.stat().st_mtime_ns) / 1e9)


@contextmanager
def one_processor() -> Iterator[None]:
    """Compute with one thread, on one processor, as one of two workers does."""
    keep_freed_memory()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        with one_thread():
            yield
    finally:
        os.sched_setaffinity(0, processors)


def speed(data: Path, work: Path, repeats: int) -> dict[str, Any]:
    """Rates of one and of two workers of one thread each, in turns."""
    from gnnretrieval.encoders.opening import fingerprint_of
    from gnnretrieval.encoders.settings import EncoderSettings
    from gnnretrieval.shards import ShardedStage, Sharding, run_stage

    settings = EncoderSettings(max_tokens=64, window=64)
    dataset = Dataset.open(data)
    total = min(len(dataset.passage_ids), 5120)
    features = synthetic_features(data, work)
    rates: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in STAGES}
    for repeat in range(repeats):
        for count in (1, 2):
            place = work / f"speed-{repeat}-{count}"
            shutil.rmtree(place, ignore_errors=True)
            weights = fingerprint_of(settings)[0]["passage"]
            encoding = EncodingShards(
                dataset.place, settings.model_dump_json(), weights, "passage", total, 80, place / "encoding", "cpu"
            )
            search = NeighborShards(
                dataset.place,
                features.path,
                features.hash,
                "train",
                10,
                len(dataset.passage_ids),
                40,
                place / "top-k",
                "cpu",
            )
            stages: tuple[ShardedStage, ...] = (encoding, search)
            for name, stage in zip(STAGES, stages, strict=True):
                with one_processor() if count == 1 else nullcontext():  # two workers have a thread each anyway
                    run_stage(stage, Sharding(shards=len(stage.parts), workers=count))
                parts = range(len(stage.parts))
                sizes = {
                    stage.path(number).name: stage.parts[number].stop - stage.parts[number].start for number in parts
                }
                rates[name][count].append(rate([stage.path(number) for number in parts], sizes, count))
            shutil.rmtree(place)
    return {name: {str(count): max(its) for count, its in by.items()} for name, by in rates.items()}


def synthetic_features(data: Path, work: Path) -> Any:
    """Features of random vectors, wide enough that a search takes a while."""
    from gnnretrieval.encoders.features import Features

    dataset, rng = Dataset.open(data), np.random.default_rng(0)
    sides = [rng.standard_normal((len(ids), 4096), np.float32) for ids in (dataset.passage_ids, dataset.query_ids)]
    made = Features.from_vectors(dataset, sides[0], sides[1], work / "synthetic", overwrite=True)
    return open_features(made.path)


def merging(work: Path, passages: int, dimension: int, shards: int) -> dict[str, Any]:
    """Seconds and peak memory of joining shards of random vectors, and of merging searches of them."""
    place = work / "merging"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    nowhere: Any = None
    stage = EncodingShards(nowhere, '{"window": 1024}', "", "passage", passages, shards, place, "cpu")
    block: NDArray[np.float16] = (
        np.random.default_rng(0).standard_normal((65536, dimension), np.float32).astype(np.float16)
    )
    for number, part in enumerate(stage.parts):
        rows = part.stop - part.start
        with ArrayWriter(stage.path(number), (rows, dimension), np.float16) as writer:
            for start in range(0, rows, len(block)):
                writer.write(block[: rows - start])
    queries, k = 10_000, 25
    search = NeighborShards(nowhere, place, "", "train", k, passages, shards, place, "cpu")
    for number, part in enumerate(search.parts):
        save_array(
            search.path(number), np.sort(np.random.default_rng(number).integers(part.start, part.stop, (queries, k)))
        )
        scores = -np.sort(-np.random.default_rng(number).random((queries, k), np.float32))
        save_array(search._scores(number), scores)
    code = (
        "import sys, time, pickle, resource; stage, search = pickle.load(sys.stdin.buffer); begun = time.monotonic();"
        f"stage.merge(stage.directory / 'merged.npy', {dimension}); joined = time.monotonic(); search.merge();"
        "print(joined - begun, time.monotonic() - joined, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((stage, search)), capture_output=True, check=True
    )
    seconds, seconds_search, peak = map(float, done.stdout.split())
    shutil.rmtree(place)
    return {
        "passages": passages,
        "dimension": dimension,
        "shards": shards,
        "queries": queries,
        "k": k,
        "vectors_s": seconds,
        "searches_s": seconds_search,
        "peak_mib": peak / 1024,
    }


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# Stages in shards",
        "",
        "`python benchmarks/scale_out.py --work DIRECTORY` makes this page. The hosts are two network namespaces of",
        "one machine, each with a Ray node of one processor. The texts are",
        f"{results['passages']:,} passages of the docstring corpus and their questions, in {SHARDS} shards a side.",
        "",
        "## The same bytes",
        "",
        "The sha256 of every file of the artifact, against one process without shards.",
        "",
        "| stage | " + " | ".join(results["bytes"][STAGES[0]]["equal"]) + " |",
        "|---|" + "---|" * (len(WORKERS) + 1),
    ]
    for stage, found in results["bytes"].items():
        lines.append(
            f"| {stage} | " + " | ".join("equal" if one else "**differ**" for one in found["equal"].values()) + " |"
        )
    lines += [
        "",
        "## SIGKILL while a stage runs, over two hosts",
        "",
        f"A kill comes after a random number of shards, 0 to {SHARDS - 2}, and up to 0.3 s more. `at a shard` counts",
        "the kills when a worker was at one; the others came between two shards. A killed driver's command is run",
        "again. `done again` counts shards that were whole when the kill came; besides them, a killed worker loses the",
        "shard that it was at.",
        "",
        "| stage | killed | trials | at a shard | bytes equal | whole shards | done again |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for stage, found in results["bytes"].items():
        for target in TARGETS:
            rows = [row for row in found["kills"] if row["target"] == target]
            sums = [sum(row[name] for row in rows) for name in ("hit", "equal", "whole", "again")]
            lines.append(f"| {stage} | {target} | {len(rows)} | " + " | ".join(map(str, sums)) + " |")
    if results["speed"] is not None:
        lines += [
            "",
            "## Two workers of one thread against one",
            "",
            "Rows a second after each worker's first shard, the best of the repeats, in turns.",
            "",
            "| stage | one worker | two workers | ratio |",
            "|---|---:|---:|---:|",
        ]
        for stage in STAGES:
            rates = results["speed"][stage]
            lines.append(f"| {stage} | {rates['1']:,.1f} | {rates['2']:,.1f} | {rates['2'] / rates['1']:.2f} |")
    its = results["merging"]
    lines += [
        "",
        *scale_out_training.lines(results["training"]),
        "## Merging",
        "",
        f"{its['passages']:,} synthetic vectors of {its['dimension']} dimensions from {its['shards']} shards are",
        f"joined in {its['vectors_s']:.0f} s, and the {its['k']} best passages of {its['queries']:,} questions are",
        f"merged in {its['searches_s']:.1f} s. Peak memory: {its['peak_mib']:,.0f} MiB.",
        "",
        f"Revision {its['revision'][:7]}.",
        "",
        *(
            []
            if results["speed"] is not None
            else ["The ratio of two workers of one thread to one was not measured: it wants a quiet machine.", ""]
        ),
        "NCCL and `--device cuda` were not run.",
        "",
        f"Revision {results['revision'][:7]}.",
        "",
    ]
    return "\n".join(lines)


def first_passages(whole: Path, count: int, place: Path) -> Path:
    """A dataset of the first passages of another that training questions are about, and these questions."""
    dataset = Dataset.open(whole)
    judged = dataset.split("train")
    wanted = {passage for its in judged.values() for passage in its}
    passages = [one for one in dataset.passages() if one.id in wanted][:count]
    kept = {one.id for one in passages}
    qrels = {query: {p: s for p, s in its.items() if p in kept} for query, its in judged.items()}
    qrels = {query: its for query, its in qrels.items() if its}
    queries = [{"id": one.id, "text": one.text} for one in dataset.queries() if one.id in qrels]
    records = [{"id": one.id, "title": one.title, "text": one.text} for one in passages]
    names = [*qrels]
    splits = {"dev": names[::10], "test": names[1::10], "train": [one for n, one in enumerate(names) if n % 10 > 1]}
    of = {split: {query: qrels[query] for query in its} for split, its in splits.items()}
    return Dataset.from_records(records, queries, of.pop("train"), place, overwrite=True, **of).path


@click.command()
@click.option(
    "--work", type=click.Path(path_type=Path), required=True, help="Where trials run; about 30 GB for merging."
)
@click.option("--passages", default=600, show_default=True, help="Passages of the trials with kills.")
@click.option("--kills", default=30, show_default=True, help="Kills of each kind a stage.")
@click.option("--trainings", default=5, show_default=True, help="Killed trainings of each kind.")
@click.option("--repeats", default=3, show_default=True, help="Measurements of each speed.")
@click.option("--speed/--no-speed", "with_speed", default=True, help="Measure speed too, on a quiet machine.")
@click.option("--merged", default=8_800_000, show_default=True, help="Passages that are merged.")
def main(work: Path, passages: int, kills: int, trainings: int, repeats: int, with_speed: bool, merged: int) -> None:
    """Measure, and write the page."""
    show_progress()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work.mkdir(parents=True, exist_ok=True)
    corpus = make_docstring_corpus(work / "docstrings", overwrite=True).path
    data = first_passages(corpus, passages, work / "some")
    results = {
        "passages": len(Dataset.open(data).passage_ids),
        "revision": git_revision() or "unknown",
        "bytes": bytes_and_kills(data, work, kills),
        "training": kept(work / "training.json", lambda: scale_out_training.training(work, trainings)),
        "merging": kept(work / "merging.json", lambda: merging(work, merged, 768, 64)),
        "speed": kept(work / "speed.json", lambda: speed(corpus, work, repeats)) if with_speed else None,
    }
    write_json(RESULTS / "scale_out.json", results)
    (RESULTS / "scale_out.md").write_text(markdown(results), encoding="utf-8")
    say(f"{RESULTS / 'scale_out.md'}: written")


if __name__ == "__main__":
    main()
