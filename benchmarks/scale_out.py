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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import scale_out_training
from scale_out_page import SHARDS, STAGES, TARGETS, WORKERS, markdown
from scale_out_speed import merging, speed
from scale_out_storage import STORED, s3_environment, s3_server, seen_on_second_host
from scale_out_trials import RAY, Cluster, Trial, files_of, workers
from two_hosts import ENVIRONMENT

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.locks import beside
from gnnretrieval.storage.provenance import git_revision, write_json

RESULTS = Path(__file__).resolve().parent / "results"


def kept(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``measure`` returns, with the revision, kept in ``path`` for a later run of this script."""
    if not path.is_file():
        write_json(path, measure() | {"revision": git_revision() or "unknown"})
    return dict(json.loads(path.read_text("utf-8")))


def files_without_shards(make_trial: Callable[[], Trial], features: Path) -> dict[str, Any]:
    """The sha256 of the files by one process without shards; an encoding is moved to ``features``."""
    trial = make_trial()
    files = trial.run()
    if trial.out.name == "encoding":
        shutil.rmtree(features, ignore_errors=True)
        trial.out.rename(features)
    return {"files": files}


def equality(make_trial: Callable[[], Trial], wanted: dict[str, str]) -> dict[str, Any]:
    """Whether the files are as wanted, by workers and engine, and the seconds over two hosts."""
    equal = {
        f"{number} local": make_trial().run("--shards", SHARDS, "--workers", number) == wanted for number in WORKERS
    }
    begun = time.monotonic()
    equal["ray, two hosts"] = make_trial().run(*RAY) == wanted
    return {"equal": equal, "seconds": time.monotonic() - begun}


def killed(
    make_trial: Callable[[], Trial],
    target: str,
    cluster: Cluster,
    after: int,
    delay: float,
    wanted: dict[str, str],
    options: Sequence[object] = RAY,
) -> dict[str, Any]:
    """Run a stage and kill something while a worker is at a shard; a killed driver's command is run again.

    Args:
        make_trial: Makes the stage's trial.
        target: What is killed.
        cluster: The hosts.
        after: Number of shards that are whole before.
        delay: Seconds from then to the kill.
        wanted: The sha256 of the files.
        options: Who runs the shards.

    Returns:
        The kill, whether the files are as wanted, whether a worker was at a shard, the number of shards that were whole
        at the kill, and how many of these were done again.
    """
    trial = make_trial()
    driver = subprocess.Popen(trial.words(*options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    shards = beside(trial.out, "shards")
    while driver.poll() is None and not (len(list(shards.rglob(trial.files))) >= after and workers()):
        time.sleep(0.01)
    time.sleep(delay)
    hit = bool(running := workers())
    whole = {file: file.stat().st_mtime_ns for file in shards.rglob("[!.]*.npy")}
    again: set[Path] = set()
    if target == "driver":
        driver.kill()
    elif target == "node":
        cluster.kill_node()
    elif running:
        with suppress(ProcessLookupError):
            os.kill(random.choice(running), signal.SIGKILL)
    with watched(whole, again):
        _, error = driver.communicate()
        if target == "driver":
            trial.run(*options)
        elif driver.returncode:
            raise SystemExit(f"{target} killed after {after} shards: {error.decode()}")
    equal = files_of(trial.out) == wanted
    return {
        **{"target": target, "after": after, "delay": delay, "equal": equal},
        **{"hit": hit, "whole": len(whole), "again": len(again)},
    }


@contextmanager
def watched(whole: dict[Path, int], again: set[Path]) -> Iterator[None]:
    """Collect which of the files are written again meanwhile."""
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
    results: dict[str, Any] = {}
    work.mkdir(exist_ok=True)
    features = work / "features"
    rng = random.Random(0)
    with Cluster() as cluster:
        for stage in STAGES:  # the second one reads the first one's result
            trial = partial(Trial, stage, data, features, work / "trial")
            wanted = kept(work / f"{stage}-files.json", partial(files_without_shards, trial, features))["files"]
            equal = kept(work / f"{stage}-equal.json", partial(equality, trial, wanted))
            say(f"{stage}: {equal}")
            rows = []
            for number, target in product(range(kills), TARGETS):
                after, delay = rng.randrange(SHARDS - 1), rng.uniform(0, 0.3)
                measure = partial(killed, trial, target, cluster, after, delay, wanted)
                rows.append(kept(work / f"{stage}-{target}-{number}.json", measure))
                say(f"{stage}: {rows[-1]}")
            results[stage] = {**equal, "kills": rows}
    return results


def by_storage(data: Path, work: Path, kills: int) -> dict[str, Any]:
    """The same with shards and inputs in an S3 bucket, where the second host sees nothing of ``work``'s trials."""
    place, features, results = work / "apart", work / "features", dict[str, Any]()
    place.mkdir(exist_ok=True)
    rng = random.Random(1)
    ENVIRONMENT.update(s3_environment(place / "cache"))  # which Ray's nodes start with
    with Cluster(hidden=place) as cluster, s3_server():
        for stage in STAGES:
            trial = partial(Trial, stage, place / "data", place / "features", place / "trial")
            for name, source in (("data", data), ("features", features)):
                if not (place / name).is_dir():
                    shutil.copytree(source, place / name)
            wanted = json.loads((work / f"{stage}-files.json").read_text("utf-8"))["files"]

            def unbroken(trial: Callable[[], Trial] = trial, wanted: dict[str, str] = wanted) -> dict[str, Any]:
                return {"equal": trial().run(*STORED) == wanted, "copies": seen_on_second_host(place / "cache")}

            rows = []
            figures = kept(work / f"{stage}-stored.json", unbroken)
            say(f"{stage} by storage: {figures}")
            for number, target in product(range(kills), TARGETS):
                after, delay = rng.randrange(SHARDS - 1), rng.uniform(0, 0.3)
                measure = partial(killed, trial, target, cluster, after, delay, wanted, STORED)
                rows.append(kept(work / f"{stage}-stored-{target}-{number}.json", measure))
                say(f"{stage} by storage: {rows[-1]}")
            results[stage] = {**figures, "kills": rows}
    return results


def first_passages(whole: Path, count: int, place: Path) -> Path:
    """A dataset of the first passages of another that training questions are about, and these questions."""
    dataset = Dataset.open(whole)
    judged = dataset.split("train")
    wanted = {passage for grades in judged.values() for passage in grades}
    passages = [passage for passage in dataset.passages() if passage.id in wanted][:count]
    kept = {passage.id for passage in passages}
    qrels = {query: {p: s for p, s in grades.items() if p in kept} for query, grades in judged.items()}
    qrels = {query: grades for query, grades in qrels.items() if grades}
    queries = [{"id": query.id, "text": query.text} for query in dataset.queries() if query.id in qrels]
    records = [{"id": passage.id, "title": passage.title, "text": passage.text} for passage in passages]
    names = [*qrels]
    train = [name for number, name in enumerate(names) if number % 10 > 1]
    splits = {"dev": names[::10], "test": names[1::10], "train": train}
    of = {split: {query: qrels[query] for query in part} for split, part in splits.items()}
    return Dataset.from_records(records, queries, of.pop("train"), place, overwrite=True, **of).path


@click.command()
@click.option(
    "--work", type=click.Path(path_type=Path), required=True, help="Where trials run; about 30 GB for merging."
)
@click.option("--passages", default=600, show_default=True, help="Passages of the trials with kills.")
@click.option("--kills", default=30, show_default=True, help="Kills of each kind a stage.")
@click.option("--stored-kills", default=5, show_default=True, help="The same where shards are in an S3 bucket.")
@click.option("--trainings", default=5, show_default=True, help="Killed trainings of each kind.")
@click.option("--repeats", default=3, show_default=True, help="Measurements of each speed.")
@click.option("--speed/--no-speed", "with_speed", default=True, help="Measure speed too, on a quiet machine.")
@click.option("--merged", default=8_800_000, show_default=True, help="Passages that are merged.")
def main(
    work: Path,
    passages: int,
    kills: int,
    stored_kills: int,
    trainings: int,
    repeats: int,
    with_speed: bool,
    merged: int,
) -> None:
    """Measure, and write the page."""
    show_progress()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work.mkdir(parents=True, exist_ok=True)
    work = work.resolve()
    corpus = make_docstring_corpus(work / "docstrings", overwrite=True).path
    data = first_passages(corpus, passages, work / "some")
    results = {
        "passages": len(Dataset.open(data).passage_ids),
        "revision": git_revision() or "unknown",
        "bytes": bytes_and_kills(data, work / f"{passages}-passages", kills),
        "storage": by_storage(data, work / f"{passages}-passages", stored_kills),
        "training": kept(work / f"training-{trainings}.json", lambda: scale_out_training.training(work, trainings)),
        "merging": kept(work / f"merging-{merged}.json", lambda: merging(work, merged, 768, 64)),
        "speed": kept(work / f"speed-{repeats}.json", lambda: speed(corpus, work, repeats)) if with_speed else None,
    }
    write_json(RESULTS / "scale_out.json", results)
    (RESULTS / "scale_out.md").write_text(markdown(results), encoding="utf-8")
    say(f"{RESULTS / 'scale_out.md'}: written")


if __name__ == "__main__":
    main()
