"""A small run over seeded random vectors, and a `gnnretrieval serve` process over it, for the trials of faults."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from gnnretrieval import GraphRetriever
from gnnretrieval.training.gnn import ladder

PASSAGES, QUERIES, DIMENSION, SEED = 300, 200, 32, 0


def make_run(directory: Path, seed: int = SEED) -> Path:
    """A run of ``PASSAGES`` passages and ``QUERIES`` questions, each near its passage; reused if it is there."""
    if (directory / "index" / "meta.json").is_file():
        return directory
    rng = np.random.default_rng(seed)
    passages = rng.normal(size=(PASSAGES, DIMENSION)).astype(np.float32)
    rows = np.arange(QUERIES) % (PASSAGES // 2)
    queries = passages[rows] + 0.5 * rng.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    vars(ladder)["STEPS"] = (100,)  # few steps: quality does not matter
    GraphRetriever.fit(
        {f"p{row}": f"passage {row} version 0" for row in range(PASSAGES)},
        {f"q{row}": f"question {row}" for row in range(QUERIES)},
        {f"q{row}": {f"p{rows[row]}": 1} for row in range(QUERIES)},
        vectors=(passages, queries),
        out=directory,
        k=5,
    )
    return directory


class Server:
    """A server process.

    Args:
        run: The run that it serves.
        log: File for its standard error.
        options: Further words of the command.
        descriptors: Maximum number of open files; None: as this process.
    """

    def __init__(self, run: Path, log: Path, *options: str, descriptors: int | None = None) -> None:
        words = [sys.executable, "-W", "ignore", "-m", "gnnretrieval", "serve", str(run), "--port", "0", *options]
        limit = [] if descriptors is None else ["prlimit", f"--nofile={descriptors}:{descriptors}"]
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen([*limit, *words], stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.port = self._port()

    def _port(self) -> int:
        while self.process.poll() is None:
            for line in self.log.read_text("utf-8").splitlines():
                if "(Ctrl-C stops it)" in line:
                    return int(line.split("http://127.0.0.1:")[1].split()[0])
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text("utf-8"))

    def ask(
        self, method: str, path: str, body: Any = None, timeout: float = 10, token: str | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, answer and headers of one request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return ask(connection, method, path, body, token)
        finally:
            connection.close()

    @property
    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    @property
    def descriptors(self) -> int:
        """Number of open files."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> float:
        """Send SIGTERM; returns the seconds until the process ended, infinity if it did not end within 30."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return float("inf")
        return time.monotonic() - begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, answer and headers of one request on a connection that stays open."""
    text = None if body is None else json.dumps(body)
    headers = {"content-type": "application/json"} if text else {}
    connection.request(method, path, text, headers | ({"authorization": f"Bearer {token}"} if token else {}))
    response = connection.getresponse()
    answer = response.read()
    return response.status, json.loads(answer), {name.lower(): value for name, value in response.getheaders()}
