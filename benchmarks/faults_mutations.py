"""Mutated artifacts of every kind: the command that reads one works, or refuses it in one sentence.

Run by ``faults.py``. The command runs in a fork of a process that has imported everything, with limited memory and
time. Every draw is seeded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tiny checkpoint and dataset come from the tests
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np

from gnnretrieval.cli import main
from gnnretrieval.progress import progress
from gnnretrieval.storage.provenance import git_revision, write_json
from gnnretrieval.storage.verifying import verify

FULL = 1000  # mutated artifacts of a kind
SECONDS = 5  # of processor time that a command may take
_BY_THE_CLOCK = 60  # seconds of wall-clock time that it may take: the machine may be busy
_MEMORY = 2 * 2**30  # bytes above what the process has mapped
_KEPT = 20  # failures of a kind that are reported
_NOT_MUTATED = {"README.md", "modelcard.md"}
_TIMES = re.compile(r'[\d.,]+ (ms|s|seconds|minutes|questions/s)\b|"(milli)?seconds": [\d.]+')
_ODD: tuple[Any, ...] = (None, True, -1, 0, 10**12, 2**63, 1e300, "", "x", "../..", [], {}, [[]], {"a": 1}, "\ud800")


class Kind(NamedTuple):
    """An artifact and the commands that read it.

    In a command ``{}`` is the mutated copy, ``{work}`` the directory of whole artifacts, and ``{out}`` the output path.
    """

    name: str
    readers: tuple[str, ...]


KINDS = {
    "dataset": Kind("dataset", ("data inspect {}", "encoder encode {} --checkpoint {work}/encoder --out {out}")),
    "features": Kind("features", ("index build {} --out {out}", "graph build {work}/dataset {} --k 3 --out {out}")),
    "graph": Kind("graph", ("graph inspect {}", "train {} --layer gat --epochs 1 --out {out}", "train {} --out {out}")),
    "GNN-encoder, linear": Kind("linear", ("embed {} --out {out}",)),
    "GNN-encoder, gat": Kind("gat", ("embed {} --out {out}",)),
    "embeddings": Kind("embeddings", ("index build {} --out {out}",)),
    "index, Flat": Kind("flat", ("search babe --index {} --json",)),
    "index, IVF": Kind("ivf", ("search babe --index {} --json",)),
    "index, HNSW": Kind("hnsw", ("search babe --index {} --json",)),
    "encoder": Kind("encoder", ("encoder encode {work}/dataset --checkpoint {} --out {out}",)),
    "cross-encoder": Kind(
        "cross-encoder", ("mine denoise {work}/examples --cross-encoder {} --pair-tokens 64 --out {out}",)
    ),
    "mined examples": Kind(
        "examples", ("mine denoise {} --cross-encoder {work}/cross-encoder --pair-tokens 64 --out {out}",)
    ),
}

_MAKE = (
    "data import beir-corpus={work}/beir/corpus.jsonl beir-queries={work}/beir/queries.jsonl "
    "beir-qrels@train={work}/beir/qrels/train.tsv beir-qrels@dev={work}/beir/qrels/dev.tsv --out {work}/dataset",
    "encoder encode {work}/dataset --checkpoint {work}/encoder --precision float32 --out {work}/features",
    "graph build {work}/dataset {work}/features --k 5 --out {work}/graph",
    "train {work}/graph --evidence 1 --out {work}/linear",
    "train {work}/graph --layer gat --epochs 2 --evidence 1 --out {work}/gat",
    "embed {work}/gat --out {work}/embeddings",
    "index build {work}/embeddings --out {work}/flat",
    "index build {work}/embeddings --factory IVF4,SQ8 --search nprobe=2 --out {work}/ivf",
    "index build {work}/embeddings --factory HNSW8 --search efSearch=16 --out {work}/hnsw",
    "mine negatives {work}/dataset --features {work}/features --out {work}/examples",
)


class Outcome(NamedTuple):
    """Outcome of a command: exit code or negative signal number, standard output and error, hash of its output."""

    code: int
    out: str
    err: str
    digest: str


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Run the trial; returns what ``faults.py`` writes."""
    count = trials or FULL
    work.mkdir(parents=True, exist_ok=True)
    prepare(work)
    rows, told = [], dict[str, list[str]]()
    done = work / "done"  # results that an earlier run of the same revision finished
    done.mkdir(exist_ok=True)
    revision = git_revision()
    known = revision is not None and revision.isalnum()  # else the code may have changed since
    for name, kind in KINDS.items():
        kept = done / f"{kind.name} {count} {revision}.json"
        if not known or not kept.is_file():
            row, failures = measure(name, kind, count, work)
            write_json(kept, {"row": {"artifact": name, **row}, "told": failures})
        row, failures = json.loads(kept.read_text("utf-8")).values()
        rows.append(row)
        if failures:
            told[name] = failures
            sys.stderr.write("".join(f"{name}: {line}\n" for line in failures))
    return {
        "title": "Mutated artifacts",
        "done": (
            f"{count:,} mutated copies of each artifact (bits flipped, a file cut, spans zeroed, two files swapped, "
            "integers shuffled or made huge, headers and entries of JSON edited), each read by the command that reads "
            f"it, within {SECONDS} s of processor time and 2 GiB of memory. Failed: ended by a signal, a traceback, "
            "out of memory, out of time, an error of more than a sentence, or another result than the whole artifact's "
            "without an error, where `verify` (and so `--verify` of serve and embed) does not notice it. Checkpoints "
            "are no artifacts: what is made with one records the sha256 of its files."
        ),
        "rows": rows,
        "tried": count * len(KINDS),
        "failures": sum(row["failed"] for row in rows),
        "told": told,
    }


def prepare(work: Path) -> None:
    """Make one whole artifact of each kind; what is there is kept."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import conftest
    import faiss
    import few_steps
    import torch
    import transformers.models.bert.modeling_bert  # noqa: F401 - a fork would load them every time

    few_steps.shorten()
    torch.set_num_threads(1)  # threads do not survive a fork
    faiss.omp_set_num_threads(1)
    if not (work / "encoder").is_dir():
        conftest.write_checkpoint(work / "encoder")
        shutil.copytree(work / "encoder-bert", work / "cross-encoder")
        _classifier(work / "cross-encoder")
    if not (work / "beir").is_dir():
        conftest.write_dataset(work / "beir")
    for words in _MAKE:
        outcome = forked(words.format(work=work), limited=False)
        assert outcome.code == 0, f"{words}: {outcome.err}"


def _classifier(place: Path) -> None:
    from transformers import BertForSequenceClassification

    BertForSequenceClassification.from_pretrained(place, num_labels=1).save_pretrained(place)


def measure(name: str, kind: Kind, count: int, work: Path) -> tuple[dict[str, Any], list[str]]:
    """Outcomes of the mutated copies of an artifact, and failures in words."""
    source, case, out = work / kind.name, work / "case", work / "out"
    whole = [_run(words, source, work, out) for words in kind.readers]
    assert all(reading.code == 0 for reading in whole), [reading.err for reading in whole]
    counts: Counter[str] = Counter()
    failures: list[str] = []
    longest = 0.0
    with progress(name, count, "artifacts") as meter:
        for seed in range(count):
            random = Random(f"{name} {seed}")
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(source, case)
            what = mutate(case, random)
            number = random.randrange(len(kind.readers))
            begun = time.monotonic()
            outcome = _run(kind.readers[number], case, work, out)
            longest = max(longest, time.monotonic() - begun)
            verdict = judge(outcome, whole[number], case)
            counts[verdict.partition(":")[0]] += 1
            if verdict.startswith("failed") and len(failures) < _KEPT:
                failures.append(f"{seed} {what}: {verdict}")
            meter.advance()
    shutil.rmtree(case, ignore_errors=True)
    row = {key: counts[key] for key in ("same", "refused", "noticed by verify", "failed")}
    return {"trials": count, **row, "longest s": round(longest, 1)}, failures


def judge(outcome: Outcome, whole: Outcome, case: Path) -> str:
    """``same``, ``refused``, ``noticed by verify``, or ``failed: `` and why."""
    if outcome.code < 0:
        return f"failed: signal {-outcome.code} ({signal.Signals(-outcome.code).name})"
    lines = outcome.err.strip().splitlines()
    if "Traceback" in outcome.err:
        return f"failed: traceback: {lines[-1][:200]}"
    if "not enough memory" in outcome.err:
        return "failed: out of memory"
    if outcome.code:
        sentences = [line for line in lines if line.startswith("Error: ")]
        return "refused" if len(sentences) == 1 and lines[-1] == sentences[0] else f"failed: no sentence: {lines[-3:]}"
    if (outcome.out, outcome.digest) == (whole.out, whole.digest):
        return "same"
    return "noticed by verify" if noticed(case) else "failed: another result that verify does not notice"


def noticed(case: Path) -> bool:
    """Whether ``verify`` reports that an artifact is not as it was made."""
    if not (case / "meta.json").is_file():
        return True  # a checkpoint is no artifact: artifacts that are made with it record the hash of its files
    return bool(verify([case]).damaged)


def _run(words: str, artifact: Path, work: Path, out: Path) -> Outcome:
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(out.with_name(f".{out.name}.partial"), ignore_errors=True)
    return forked(words.format(artifact, work=work, out=out), out)


def forked(words: str, artifact: Path | None = None, *, limited: bool = True) -> Outcome:
    """Run a command in a fork of this process."""
    place = artifact.parent if artifact is not None else Path(words.split()[-1]).parent
    files = [place / "stdout", place / "stderr"]
    child = os.fork()
    if not child:
        _child(words, files, limited)
    deadline = time.monotonic() + (_BY_THE_CLOCK if limited else 600)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    out, err = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    digest = ""
    if artifact is not None and (artifact / "meta.json").is_file():
        digest = str(json.loads((artifact / "meta.json").read_text(encoding="utf-8"))["hash"])
    return Outcome(os.waitstatus_to_exitcode(ended[1]), _TIMES.sub("", out), err, digest)


def _child(words: str, files: list[Path], limited: bool) -> None:
    code = 70
    try:
        for number, file in enumerate(files, start=1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limited:
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY, mapped + _MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        sys.argv = ["gnnretrieval", *words.split()]
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def mutate(directory: Path, random: Random) -> str:
    """Change something in an artifact; returns a description of it."""
    files = [
        file
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.stat().st_size and file.name not in _NOT_MUTATED and not file.name.startswith(".")
    ]
    while True:
        file = random.choice(files)
        before = file.read_bytes()
        if file.suffix == ".json" and random.random() < 0.7:
            what = _edit_json(file, random)
        else:
            what = random.choice((_flip, _cut, _zero, _swap, _shuffle, _header))(file, random, files)
        if file.read_bytes() != before:
            return f"{file.relative_to(directory)} {what}"


def _flip(file: Path, random: Random, files: list[Path]) -> str:
    data = bytearray(file.read_bytes())
    for _ in range(random.choice((1, 1, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    file.write_bytes(data)
    return "bits flipped"


def _cut(file: Path, random: Random, files: list[Path]) -> str:
    size = random.randrange(file.stat().st_size)
    os.truncate(file, size)
    return f"cut to {size}"


def _zero(file: Path, random: Random, files: list[Path]) -> str:
    data = bytearray(file.read_bytes())
    start = random.randrange(len(data))
    stop = min(len(data), start + random.choice((1, 8, 512, 4096)))
    data[start:stop] = bytes(stop - start)
    file.write_bytes(data)
    return f"zeroed {start} to {stop}"


def _swap(file: Path, random: Random, files: list[Path]) -> str:
    other = random.choice(files)
    own, swapped = file.read_bytes(), other.read_bytes()
    file.write_bytes(swapped)
    other.write_bytes(own)
    return f"swapped with {other.name}"


def _shuffle(file: Path, random: Random, files: list[Path]) -> str:
    """Swap integers, or make them huge or negative: numbers of an array, elsewhere words of 4 or 8 bytes."""
    data = bytearray(file.read_bytes())
    start = data.find(b"\n") + 1 if file.suffix == ".npy" else 0
    width = int(np.load(file, mmap_mode="r").itemsize) if file.suffix == ".npy" else random.choice((4, 8))
    count = (len(data) - start) // width
    if not count:
        return "left"
    for _ in range(random.choice((1, 4))):
        at, to = (start + width * random.randrange(count) for _ in range(2))
        kind = random.randrange(3)
        if kind == 0:
            data[at : at + width], data[to : to + width] = data[to : to + width], data[at : at + width]
        else:
            value = random.choice((10**6, 2**31 - 1, 10**12)) if kind == 1 else -random.choice((1, 2, 10**6))
            data[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    file.write_bytes(data)
    return "integers shuffled"


def _header(file: Path, random: Random, files: list[Path]) -> str:
    data = bytearray(file.read_bytes())
    start = random.randrange(min(len(data), 128))
    digits = [place for place, byte in enumerate(data[:128]) if chr(byte).isdigit()]
    if digits and random.random() < 0.5:
        place = random.choice(digits)
        data[place : place + 1] = random.choice((b"9", b"0", b"99999999", b"-1"))
    else:
        data[start : start + 8] = bytes(random.randrange(256) for _ in range(8))
    file.write_bytes(data)
    return "header edited"


def _edit_json(file: Path, random: Random) -> str:
    value: Any = json.loads(file.read_text(encoding="utf-8"))
    within, path = value, []
    while isinstance(within, dict | list) and within:
        key = random.choice(list(within) if isinstance(within, dict) else range(len(within)))
        path.append(key)
        if not isinstance(within[key], dict | list) or not within[key] or random.random() < 0.3:
            if isinstance(within, dict) and random.random() < 0.2:
                del within[key]
            else:
                within[key] = random.choice(_ODD)
            break
        within = within[key]
    file.write_text(json.dumps(value), encoding="utf-8")
    return f"entry {'.'.join(map(str, path))} edited"
