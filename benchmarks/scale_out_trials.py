"""A stage as a command over two hosts, for benchmarks/scale_out.py."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from scale_out_page import SHARDS, STAGES
from two_hosts import BIN, ENVIRONMENT, HOSTS, Hosts, call, on_host, processes

ADDRESS = f"{HOSTS[0]}:6379"
RAY = ("--shards", SHARDS, "--engine", "ray", "--address", ADDRESS)


class Cluster(Hosts):
    """Two hosts, each with a Ray node of one processor.

    Args:
        hidden: Directory that is empty on the second host, which sees all others; None: it sees all.
    """

    def __init__(self, hidden: Path | None = None) -> None:
        self.hidden = hidden

    def __enter__(self) -> Self:
        super().__enter__()
        self.start(0, "--head", "--include-dashboard=false")
        self.start(1, "--address", ADDRESS)
        return self

    def start(self, number: int, *words: str) -> None:
        """Start the Ray node of a host."""
        node = ("start", "--node-ip-address", HOSTS[number], "--num-cpus", 1, "--object-store-memory", 10**8)
        hide = ("sh", "-c", f'mount -t tmpfs tmpfs {self.hidden} && exec "$@"', "sh") if number and self.hidden else ()
        call(*on_host(number, *hide, BIN / "ray", *node, *words), check=True)

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
    running = []
    for process in (*processes(0), *processes(1)):
        with suppress(OSError):
            title = Path(f"/proc/{process}/cmdline").read_text("utf-8")
            if title.startswith(tuple(f"ray::{stage}" for stage in STAGES)):  # not Ray's own processes
                running.append(process)
    return running


class Trial:
    """Runs a stage by its command, in an empty directory."""

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
