"""Training by torchrun over two hosts: against one process, with a rank killed, and restarted by torchrun.

Part of benchmarks/scale_out.py. Each trial trains in a directory of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file
from two_hosts import BIN, ENVIRONMENT, HOSTS, Hosts, on_host, processes

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.progress import say

EPOCHS, ENCODER_EPOCHS = 12, 3
WAIT = 900.0  # seconds after which a run counts as one that does not end
SENTENCE = "of this training run"  # of gnnretrieval.training.first_process.ProcessGoneError
ENDS = ((0, 0), (1, 0), (1, 3))  # rank that is killed, and how often torchrun starts the ranks again
TITLES = {"gnn": "`train --layer gat`, frozen encoder", "encoder": "`encoder train`, in-batch negatives"}


class Outcome(NamedTuple):
    """How a run over two hosts ended.

    Attributes:
        codes: Exit codes of the two launchers.
        output: What they printed.
        seconds: From the kill, or from the start, to the end of the last one.
        epochs: Epochs that were done at the kill; None: nothing was killed.
    """

    codes: tuple[int, int]
    output: str
    seconds: float
    epochs: int | None = None


class Training:
    """One kind of training as a command.

    Args:
        kind: ``gnn`` or ``encoder``.
        work: Holds the dataset ``some``, and the graph or the recipe.
        place: Where the trials are.
    """

    def __init__(self, kind: str, work: Path, place: Path) -> None:
        self.kind, self.place = kind, place
        self.words: tuple[object, ...] = (
            ("train", work / "training" / "graph", "--layer", "gat", "--epochs", EPOCHS, "--precision", "float32")
            if kind == "gnn"
            else ("encoder", "train", work / "training" / "encoder.toml", "--data", work / "some")
        )

    def out(self, name: str) -> Path:
        """The directory of a trial's result."""
        return self.place / f"{self.kind}-{name}"

    def model(self, name: str) -> Path:
        """The artifact with weights and log."""
        return self.out(name) if self.kind == "gnn" else self.out(name) / "encoder"

    def alone(self, name: str) -> None:
        """Run in one process."""
        words = (BIN / "gnnretrieval", *self.words, "--out", self.out(name))
        subprocess.run([*map(str, words)], check=True, capture_output=True, env=ENVIRONMENT)

    def two(self, name: str, *, kill: int | None = None, restarts: int = 0) -> Outcome:
        """Run by torchrun on both hosts, one process each.

        Args:
            name: Of the trial.
            kill: The host whose rank is killed at a random moment of training; None: neither.
            restarts: How often torchrun starts the ranks again after one has ended.
        """
        begun = time.monotonic()
        launchers = [
            subprocess.Popen(
                on_host(
                    *(number, BIN / "python", "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1),
                    *("--max-restarts", restarts, *self._meeting(name, number, bool(restarts))),
                    *("-m", "gnnretrieval", *self.words, "--out", self.out(name)),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=ENVIRONMENT,
            )
            for number in range(len(HOSTS))
        ]
        epochs = None
        if kill is not None:
            epochs = self._kill_rank(kill, name, launchers)
            begun = time.monotonic()
        output = "".join(launcher.communicate(timeout=WAIT)[0] for launcher in launchers)
        first, second = (launcher.returncode for launcher in launchers)
        return Outcome((first, second), output, time.monotonic() - begun, epochs)

    def _meeting(self, name: str, number: int, elastic: bool) -> tuple[object, ...]:
        """Options by which the launchers of the hosts find each other."""
        if not elastic:
            return "--node-rank", number, "--master-addr", HOSTS[0], "--master-port", 29500
        host = f"is_host={int(number == 0)}"  # its address is no name of this machine
        rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS[0]}:29400", "--rdzv-conf", host)
        return *rendezvous, "--rdzv-id", f"{self.kind}-{name}", "--local-addr", HOSTS[number]

    def _kill_rank(self, host: int, name: str, launchers: Sequence[subprocess.Popen[str]]) -> int:
        """SIGKILL a host's rank after a random number of epochs; returns how many were done."""
        wanted = random.randrange(1, (EPOCHS if self.kind == "gnn" else ENCODER_EPOCHS) - 1)
        while (done := self.epochs_done(name)) < wanted:
            if any(launcher.poll() is not None for launcher in launchers):
                raise SystemExit(f"{self.kind}: ended before epoch {wanted}: {launchers[0].communicate()[0]}")
            time.sleep(0.02)
        time.sleep(random.uniform(0, 0.5))
        agent = launchers[host].pid
        for process in processes(host):
            if process != agent:  # torchrun stays, and sees its rank gone
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        return done

    def epochs_done(self, name: str) -> int:
        """Epochs in the log of a run that is going on."""
        logs = [
            *self.out(name).parent.glob(f".{self.out(name).name}*/**/log.jsonl"),
            *self.out(name).rglob("log.jsonl"),
        ]
        return max((len({record.get("epoch") for record in _log(log)}) for log in logs), default=0)


def _log(path: Path) -> list[dict[str, Any]]:
    with suppress(OSError, ValueError):
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return []


def losses(model: Path) -> list[float]:
    """The loss of each step."""
    return [record["loss"] for record in _log(model / "log.jsonl") if "loss" in record]


def weights(model: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All weights of an artifact."""
    return {
        f"{file.relative_to(model)}/{name}": value.astype(np.float64)
        for file in sorted(model.rglob("model.safetensors"))
        for name, value in load_file(file).items()
    }


def farthest(first: Path, second: Path) -> dict[str, float]:
    """Largest relative difference of a step's loss, and largest difference of a weight."""
    ours, theirs = losses(first), losses(second)
    assert len(ours) == len(theirs) > 1
    here, there = weights(first), weights(second)
    assert {*here} == {*there}
    assert here
    return {
        "steps": len(ours),
        "loss": float(np.max(np.abs(np.array(ours) / np.array(theirs) - 1))),
        "weights": max(float(np.abs(here[name] - there[name]).max()) for name in here),
    }


def prepare(work: Path) -> None:
    """Make the graph and the encoder's recipe of the trainings."""
    dataset, place = Dataset.open(work / "some"), work / "training"
    features = encode_dataset(dataset, EncoderSettings(max_tokens=64), place / "features", overwrite=True)
    build_graph(dataset, features, GraphSettings(), place / "graph", overwrite=True)
    (place / "encoder.toml").write_text(
        'name = "encoder"\n[encoder]\ncheckpoint = "sentence-transformers/all-MiniLM-L6-v2"\nmax_tokens = 32\n'
        f"[train]\nshared = true\nepochs = {ENCODER_EPOCHS}\nbatch_size = 64\nhard_negatives = 0\ndropout = 0.0\n"
        'precision = "float32"\ndev_queries = 50\ndev_passages = 200\n'
        '[[stages]]\nname = "encoder"\nkind = "encoder"\nexamples = ["labels"]\n',
        encoding="utf-8",
    )


def training(work: Path, trials: int) -> dict[str, Any]:
    """Compare trainings over two hosts with one process, and with runs in which a rank is killed."""
    place = work / "trainings"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    prepare(work)
    random.seed(0)
    results: dict[str, Any] = {}
    with Hosts():
        for kind in TITLES:
            trial = Training(kind, work, place)
            trial.alone("alone")
            if any((whole := trial.two("two")).codes):
                raise SystemExit(whole.output)
            results[kind] = {"against one process": farthest(trial.model("two"), trial.model("alone")), "kills": []}
            say(f"{kind}: {results[kind]}")
            for number in range(trials):
                for host, restarts in ENDS:
                    name = f"killed-{number}-{host}-{restarts}"
                    outcome = trial.two(name, kill=host, restarts=restarts)
                    row: dict[str, Any] = {
                        "rank": host,
                        "restarts": restarts,
                        "epochs": outcome.epochs,
                        "seconds": outcome.seconds,
                        "codes": outcome.codes,
                        "sentence": SENTENCE in outcome.output,
                    }
                    if not restarts and any((again := trial.two(name)).codes):
                        raise SystemExit(again.output)
                    row["resumed"] = farthest(trial.model(name), trial.model("two"))
                    results[kind]["kills"].append(row)
                    say(f"{kind}: {row}")
                    (place / f"{kind}-{name}.txt").write_text(outcome.output, encoding="utf-8")
    return results
