"""Killed at random moments, the next run of the same command finishes, and the result is that of an unbroken run.

    .venv/bin/python benchmarks/interruption.py --work DIRECTORY

Three commands over a part of the docstring corpus, each killed with SIGKILL at 30 moments drawn from a seed over the
time it takes unbroken: encoder encode, graph build (with a cross-encoder's vectors on the edges) and graph add
(queries and passages). After each kill the same command runs again; every file is then compared, byte by byte, with
the unbroken run's. Writes results/interruption.json and results/interruption.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import click

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import bm25s  # noqa: F401
import sentence_transformers  # noqa: F401
import torch
import transformers  # noqa: F401

import gnnretrieval.encoders.cross_encoder
import gnnretrieval.graph.growth.add  # noqa: F401
from gnnretrieval.cli import main as gnnretrieval_main
from gnnretrieval.data import Dataset
from gnnretrieval.data.docstring_corpus.corpus import make_docstring_corpus
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.progress import say
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
PASSAGES, LATE_PASSAGES, QUERIES, LATE_QUERIES = 200, 20, 60, 12
DATED = ("made", "seconds", "git_revision", "versions")  # of a meta.json


def start(log: Path, words: list[str]) -> int:
    """Run a command in a fork of this process, which has imported everything; its id."""
    process = os.fork()
    if process:
        return process
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["gnnretrieval", *words]
    code: Any = 0
    try:
        gnnretrieval_main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code or 0)


def finish(process: int) -> int:
    """Exit code of a process, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def content(directory: Path) -> dict[str, Any]:
    """Every file's bytes; of a ``meta.json`` what is not dated."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.name == "meta.json":
            meta = json.loads(path.read_text(encoding="utf-8"))
            found["meta.json"] = {key: value for key, value in meta.items() if key not in DATED}
        elif path.is_file():
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def make_data(work: Path) -> None:
    """``early/``, a part of the corpus, and what is added to it: ``queries.jsonl``, ``qrels.tsv``, ``corpus.jsonl``."""
    made = Dataset.open(make_docstring_corpus(work / "docstrings", summaries="question", overwrite=True).path)
    judged = made.split("train")
    passages = [passage for passage, _ in zip(made.passages(), range(PASSAGES + LATE_PASSAGES), strict=False)]
    known = {passage.id for passage in passages[:PASSAGES]}
    texts = {query.id: query.text for query in made.queries_of("train")}
    asked = [query for query, relevant in judged.items() if known.issuperset(relevant)][: QUERIES + LATE_QUERIES]
    early = work / "early"
    (early / "qrels").mkdir(parents=True, exist_ok=True)
    records = [{"_id": passage.id, "title": passage.title, "text": passage.text} for passage in passages]
    queries = [{"_id": query, "text": texts[query]} for query in asked]
    lines = [f"{query}\t{passage}\t{grade}" for query in asked for passage, grade in judged[query].items()]
    of_early = {query["_id"] for query in queries[:QUERIES]}
    for path, rows in (
        (early / "corpus.jsonl", records[:PASSAGES]),
        (work / "corpus.jsonl", records[PASSAGES:]),
        (early / "queries.jsonl", queries[:QUERIES]),
        (work / "queries.jsonl", queries[QUERIES:]),
    ):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for path, wanted in ((early / "qrels" / "train.tsv", True), (work / "qrels.tsv", False)):
        kept = [line for line in lines if (line.split("\t")[0] in of_early) == wanted]
        path.write_text("\n".join(["query-id\tcorpus-id\tscore", *kept]) + "\n", encoding="utf-8")


def make_cross_encoder(out: Path) -> None:
    """all-MiniLM-L6-v2 with a fresh head: what it says does not matter here."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    place = find_checkpoint("sentence-transformers/all-MiniLM-L6-v2").directory
    AutoModelForSequenceClassification.from_pretrained(place, num_labels=1).save_pretrained(out)
    AutoTokenizer.from_pretrained(place).save_pretrained(out)


def kill_at_random(name: str, work: Path, words: list[str], base: Path | None, times: int) -> dict[str, Any]:
    """Kill the command at so many moments, run it again each time, and compare.

    Args:
        name: The stage.
        work: Where everything is.
        words: The command; ``OUT`` stands for the artifact's place.
        base: What lies at ``OUT`` before the command; None: nothing.
        times: How often.
    """

    def command(place: Path) -> int:
        return start(work / f"{name}.log", [str(place) if word == "OUT" else word for word in words])

    def fresh(place: Path) -> None:
        for path in place.parent.glob(f"*{place.name}*"):
            with contextlib.suppress(NotADirectoryError):
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        if base is not None:
            shutil.copytree(base, place)

    folder = work / f"trials-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    unbroken, trial = folder / "unbroken", folder / "trial"
    fresh(unbroken)
    begin = time.monotonic()
    code = finish(command(unbroken))
    seconds = time.monotonic() - begin
    if code:
        raise click.ClickException((work / f"{name}.log").read_text(encoding="utf-8"))
    expected = content(unbroken)
    rng, killed, equal, left = random.Random(name), 0, 0, 0
    for number in range(times):
        fresh(trial)
        process = command(trial)
        time.sleep(rng.uniform(0, seconds))
        os.kill(process, signal.SIGKILL)
        killed += finish(process) == -signal.SIGKILL
        code = finish(command(trial))
        found = content(trial) if code == 0 else {}
        if found == expected:
            equal += 1
        else:
            log = (work / f"{name}.log").read_text(encoding="utf-8")
            say(f"{name}, kill {number}: exit code {code}; {_difference(found, expected)}\n{log}")
        left += sum(1 for path in folder.iterdir() if path.name not in ("unbroken", "trial"))
    say(f"{name}: {killed} of {times} killed within {seconds:.1f} s; {equal} equal afterwards")
    return {"stage": name, "kills": times, "killed": killed, "equal": equal, "left_over": left, "seconds": seconds}


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    if not found:
        return "nothing was made"
    names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return f"differs in {', '.join(names)}"


def markdown(results: dict[str, Any]) -> str:
    """The figures as a page."""
    rows = "\n".join(
        f"| {row['stage']} | {row['kills']} | {row['killed']} | {row['equal']} | {row['left_over']} |"
        for row in results["stages"]
    )
    return f"""# Killed at random moments

Regenerate: `.venv/bin/python benchmarks/interruption.py --work DIRECTORY`

SIGKILL at moments drawn from a seed over the time of an unbroken run; then the same command again. A run that was done
before its moment came is not counted as killed. Equal: every file has the unbroken run's bytes (of `meta.json`, all but
date, versions and git revision). Left over: files beside the artifact after the second run.

| command | kills | killed while running | equal afterwards | left over |
|---|---:|---:|---:|---:|
{rows}
"""


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory for what is made.")
@click.option("--times", type=click.IntRange(1), default=30, show_default=True, help="Kills of each command.")
def main(work: Path, times: int) -> None:
    """Kill, run again, compare."""
    work.mkdir(parents=True, exist_ok=True)
    # A fork inherits no threads: nothing is computed here, and the commands compute on one.
    process = os.fork()
    if not process:
        make_data(work)
        make_cross_encoder(work / "cross-encoder")
        os._exit(0)
    if finish(process):
        raise click.ClickException("the data could not be made.")
    torch.set_num_threads(1)
    early, checkpoint = str(work / "early"), str(work / "cross-encoder")
    encode = ["encoder", "encode", early, "--window", "32", "--max-tokens", "64", "--out", "OUT"]
    stages = [kill_at_random("encode", work, encode, None, times)]
    features = work / "trials-encode" / "unbroken"
    pairs = ["--edge-vectors", "cross-encoder", "--cross-encoder", checkpoint, "--pair-tokens", "64"]
    build = ["graph", "build", early, str(features), "--k", "5", *pairs, "--out", "OUT"]
    stages.append(kill_at_random("build", work, build, None, times))
    new = ["--queries", "queries.jsonl", "--qrels", "qrels.tsv", "--passages", "corpus.jsonl"]
    add = ["graph", "add", "OUT", *[word if word.startswith("--") else str(work / word) for word in new]]
    stages.append(kill_at_random("add", work, add, work / "trials-build" / "unbroken", times))
    results = {"stages": stages, "versions": library_versions(), "git_revision": git_revision()}
    write_json(RESULTS / "interruption.json", results)
    (RESULTS / "interruption.md").write_text(markdown(results), encoding="utf-8")
    click.echo(markdown(results))


if __name__ == "__main__":
    main()
