"""Connections that send no request, never finish one or never read the answer, more than the server may open."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from pathlib import Path
from typing import Any

from small_run import Server, make_run

DESCRIPTORS, SOCKETS, READERS = 1024, 1200, 20  # readers: sockets that do not read their answers
ASKED_WITHIN, STOPPED_WITHIN = 5.0, 5.0  # seconds
LOG_BYTES, MEMORY_BYTES = 100_000, 100 * 1024**2
LASTS = 12.0  # seconds that the sockets stay open: longer than the deadline of a head
_HEAD = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_UNREAD = b"GET /search?question=question+1&k=300 HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100
_QUICK = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"

KINDS: dict[str, tuple[bytes, bytes]] = {  # what is sent at first, and then again every second
    "no bytes": (b"", b""),
    "half a header": (_HEAD[:40], b""),
    "half a body": (_HEAD + b'content-length: 100\r\n\r\n{"question": "que', b""),
    "a header drips": (_HEAD, b"x: y\r\n"),
    "a body drips": (_HEAD + b"content-length: 5000\r\n\r\n", b" "),
    "idle after an answer": (_QUICK, b""),
    "answers not read": (_UNREAD, b""),
    "nonsense": (b"\x00\xff nonsense\r\n\r\n" * 3, b""),
    "opened and left": (b"", b"again"),
}


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Run the trials of every kind of connection."""
    work.mkdir(parents=True, exist_ok=True)
    run_path = make_run(work / "run")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * SOCKETS), hard))  # this process has the other ends
    rows = [_row(name, *how, run_path, work, trials or 2) for name, how in KINDS.items()]
    return {
        "title": "Connections that never end",
        "done": f"Each trial opens {SOCKETS:,} connections of one kind to a server that may have {DESCRIPTORS:,} files "
        f"open, for {LASTS:.0f} s, while a client asks a question ten times a second on a new connection each time. "
        f"A failure: a question is not answered (or refused) within {ASKED_WITHIN:.0f} s; after the sockets are closed "
        f"one is not answered; the log is above {LOG_BYTES // 1000} kB; memory grew by more than "
        f"{MEMORY_BYTES // 1024**2} MiB; or, with the sockets open, SIGTERM did not end the server within "
        f"{STOPPED_WITHIN:.0f} s.",
        "rows": rows,
        "tried": sum(row["questions"] + 4 * row["trials"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
    }


def _row(name: str, first: bytes, then: bytes, run_path: Path, work: Path, trials: int) -> dict[str, Any]:
    outcomes = [
        _trial(first, then, run_path, work / f"{name.replace(' ', '-')}-{number}.log") for number in range(trials)
    ]
    return {
        "connections": name,
        "trials": trials,
        "questions": sum(outcome["questions"] for outcome in outcomes),
        "refused": sum(outcome["refused"] for outcome in outcomes),
        "slowest ms": max(outcome["slowest"] for outcome in outcomes),
        "log bytes": max(outcome["log"] for outcome in outcomes),
        "memory grew MiB": max(outcome["memory"] for outcome in outcomes),
        "stopped after s": max(outcome["stopped"] for outcome in outcomes),
        "failures": sum(outcome["failures"] for outcome in outcomes),
    }


def _trial(first: bytes, then: bytes, run_path: Path, log: Path) -> dict[str, Any]:
    with Server(run_path, log, descriptors=DESCRIPTORS) as server:
        _question(server)
        before, failures = server.memory, 0
        with _Crowd(server.port, first, then):
            answers = _ask_meanwhile(server, LASTS)
        memory = server.memory - before
        time.sleep(0.5)
        failures += _question(server) != 200
        with _Crowd(server.port, first, then):
            time.sleep(2)
            stopped = server.stop()
        written = log.stat().st_size
    slow = sum(seconds > ASKED_WITHIN or status not in (200, 503) for seconds, status in answers)
    failures += slow + (written > LOG_BYTES) + (memory > MEMORY_BYTES) + (stopped > STOPPED_WITHIN)
    return {
        "questions": len(answers),
        "refused": sum(status == 503 for _, status in answers),
        "slowest": round(1000 * max(seconds for seconds, _ in answers)),
        "log": written,
        "memory": round(memory / 1024**2),
        "stopped": round(stopped, 1),
        "failures": failures,
    }


def _question(server: Server) -> int:
    """Ask a question; returns the status of the answer, 0 if there is none."""
    try:
        return server.ask("POST", "/search", {"question": "question 1", "k": 3}, timeout=10)[0]
    except OSError:
        return 0


def _ask_meanwhile(server: Server, seconds: float) -> list[tuple[float, int]]:
    """Ask ten questions a second; returns the seconds and the status of each."""
    answers, end = [], time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        status = _question(server)
        answers.append((time.monotonic() - begun, status))
        time.sleep(max(0.0, begun + 0.1 - time.monotonic()))
    return answers


class _Crowd:
    """Many connections, opened again when the server closes them."""

    def __init__(self, port: int, first: bytes, then: bytes) -> None:
        self._port, self._first, self._then = port, first, then
        self._sockets: list[socket.socket] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._drive)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        for connection in self._sockets:
            connection.close()

    def _drive(self) -> None:
        wanted = READERS if self._first == _UNREAD else SOCKETS
        while not self._ends.is_set():
            self._sockets = [connection for connection in self._sockets if self._goes_on(connection)]
            while len(self._sockets) < wanted and not self._ends.is_set() and self._open():
                pass
            self._ends.wait(1.0)

    def _open(self) -> bool:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        try:
            connection.connect(("127.0.0.1", self._port))
            connection.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                connection.send(self._first)
        except OSError:
            connection.close()
            return False
        self._sockets.append(connection)
        return True

    def _goes_on(self, connection: socket.socket) -> bool:
        if self._then == b"again":
            connection.close()
            return False
        try:
            with contextlib.suppress(BlockingIOError):
                if self._then:
                    connection.send(self._then)
            with contextlib.suppress(BlockingIOError):
                if self._first != _UNREAD and connection.recv(4096) == b"":
                    connection.close()
                    return False
        except OSError:
            connection.close()
            return False
        return True
