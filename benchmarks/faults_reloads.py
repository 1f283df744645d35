"""Requests while the index is replaced, cut down and damaged, and the server reloads it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from small_run import DIMENSION, PASSAGES, SEED, Server, ask, make_run

from gnnretrieval.data.text_store import PassageRow
from gnnretrieval.errors import InputError
from gnnretrieval.graph import Graph
from gnnretrieval.index.faiss_index import build_index
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.index.updating import remove_passages, update_index
from gnnretrieval.training.gnn.embeddings import open_embeddings, update_embeddings
from gnnretrieval.training.gnn.model import open_model

REQUESTS, RELOADS, CLIENTS, DAMAGED = 10_000, 20, 4, 12
MORE = 10  # maximum number of passages that are added
_QUESTIONS = 20
_TOKEN = "0123456789abcdef0123456789abcdef"
_ONE_VERSION = 8  # about the number of files that a version has open


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Send requests across reloads, and reload damaged artifacts."""
    work.mkdir(parents=True, exist_ok=True)
    rows = [_changes(work, trials or REQUESTS), *_damages(work, min(trials or DAMAGED, DAMAGED))]
    return {
        "title": "Reloads under load",
        "done": f"{CLIENTS} clients ask for rankings, comparisons, passages and neighbours without a pause while the "
        f"index is changed {RELOADS} times: a passage is added to the graph and on to the index, one is removed, or "
        "the index is made again. The server reloads it by SIGHUP, by a request and by watching. A failure: no answer, "
        "one that is not wholly of the version it names (each is compared with what that version answers when it is "
        "opened alone), or descriptors that stay open. Then artifacts are damaged beside the server: a failure is a "
        "reload that is not refused, an answer that differs afterwards, or a health that does not tell.",
        "rows": rows,
        "tried": sum(row["requests"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
    }


class _Served:
    """Expected answers of each version, from its index opened outside the server."""

    def __init__(self) -> None:
        self.rankings: dict[str, dict[str, list[str]]] = {}
        self.passages: dict[str, dict[str, str]] = {}
        self.edges: dict[str, dict[str, int]] = {}

    def note(self, run_path: Path) -> str:
        """Record the answers of the current version; returns its name."""
        retriever = Retriever.open(run_path)
        version = retriever.index.hash[:12]
        questions = {f"question {number}": f"question {number}" for number in range(_QUESTIONS)}
        results = retriever.search_all(list(questions), 10)
        self.rankings[version] = {q: [hit.id for hit in hits] for q, hits in zip(questions, results, strict=True)}
        passages = [self._passage(retriever, f"p{row}") for row in range(PASSAGES + MORE)]
        degrees = retriever.graph.degrees()
        self.passages[version] = {passage.id: passage.text for passage in passages if passage is not None}
        self.edges[version] = {passage.id: int(degrees[passage.row]) for passage in passages if passage is not None}
        return version

    def _passage(self, retriever: Retriever, id_: str) -> PassageRow | None:
        try:
            return retriever.passage(id_)
        except InputError:
            return None

    def is_right(self, path: str, body: Any, status: int, answer: Any, headers: dict[str, str]) -> bool:
        """Whether an answer is right for the version that it names."""
        version = headers.get("index-version", "")
        if version not in self.rankings or (status == 200 and answer["version"] != version):
            return False
        if path == "/search":
            return status == 200 and [hit["id"] for hit in answer["hits"]] == self.rankings[version][body["question"]]
        if path == "/compare":
            return (
                status == 200
                and [hit["id"] for hit in answer["gnn_encoder"]] == self.rankings[version][body["question"]]
            )
        id_ = path.rpartition("=")[2] if "=" in path else path.rpartition("/")[2]
        if id_ not in self.passages[version]:
            return status == 404
        if path.startswith("/passages/"):
            return status == 200 and answer["text"] == self.passages[version][id_]
        return status == 200 and answer["node"]["edges"] == self.edges[version][id_]


def _changes(work: Path, requests: int) -> dict[str, Any]:
    """Send requests while the index changes."""
    run_path, token = _copy_of(make_run(work / "run"), work / "changing"), _token(work)
    expected, rng = _Served(), np.random.default_rng(SEED)
    expected.note(run_path)
    answers: list[tuple[Any, ...]] = []
    ends, errors = threading.Event(), list[str]()
    with Server(run_path, work / "changing.log", "--token-file", str(token), "--watch", "0.5", "--rate", "0") as server:
        before = server.descriptors
        client = partial(_ask_until, ends, server.port, answers, errors)
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client, number) for number in range(CLIENTS)]
            for number in range(RELOADS):
                _change(run_path, number, rng)
                version = expected.note(run_path)
                _reload(server, number)
                _until(partial(_has_version, server, version))
                share = requests * (number + 1) // RELOADS
                _until(partial(_are_as_many, answers, share), 600)
            ends.set()
            for job in clients:
                job.result()
        metrics = ask_text(server, "/metrics")
        reloads = int(float(metrics.split('gnnretrieval_reloads_total{outcome="done"} ')[1].split()[0]))
        _free_old_versions(server.port)
        _until(lambda: server.descriptors - before <= _ONE_VERSION, 10)
        kept = server.descriptors - before
        stopped = server.stop()
    wrong = [answer for answer in answers if not expected.is_right(*answer)]
    for answer in wrong[:5]:
        print("wrong:", answer[0], answer[1], answer[2], str(answer[3])[:200], answer[4].get("index-version"))
    for error in errors[:5]:
        print("error:", error)
    named = {answer[4].get("index-version") for answer in answers}
    return {
        "trial": "changes",
        "requests": len(answers) + len(errors),
        "reloads": reloads,
        "versions named": len(named),
        "errors": len(errors),
        "not of their version": len(wrong),
        "descriptors more": kept,
        "failures": len(errors) + len(wrong) + (reloads < RELOADS) + (kept > _ONE_VERSION) + (stopped > 5),
    }


def _ask_until(
    ends: threading.Event, port: int, answers: list[tuple[Any, ...]], errors: list[str], number: int
) -> None:
    """Send random requests until the event, and collect answers and errors."""
    draw = np.random.default_rng((SEED, number))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not ends.is_set():
        path, body = _request(draw)
        try:
            answers.append((path, body, *ask(connection, "POST" if body else "GET", path, body, _TOKEN)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            errors.append(f"{path}: {error!r}")
            connection.close()


def _free_old_versions(port: int) -> None:
    """Send some requests: a thread keeps the version of its last answer until its next request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    draw = np.random.default_rng(SEED)
    for _ in range(40):
        path, body = _request(draw)
        ask(connection, "POST" if body else "GET", path, body, _TOKEN)
    connection.close()


def _request(draw: np.random.Generator) -> tuple[str, Any]:
    kind = int(draw.integers(8))
    question = {"question": f"question {draw.integers(_QUESTIONS)}", "k": 10}
    if kind < 3:
        return "/search", question
    if kind < 5:
        return "/compare", question
    id_ = f"p{draw.integers(PASSAGES + MORE)}"  # some are added later
    return (f"/passages/{id_}", None) if kind < 7 else (f"/graph/neighbors?id={id_}", None)


def _change(run_path: Path, number: int, rng: np.random.Generator) -> None:
    """In turn: add a passage to the graph and the index, remove one from the index, or build the index again."""
    if number % 3 == 0:
        id_ = f"p{PASSAGES + number // 3}"
        vector = run_path / "new.npy"
        np.save(vector, rng.normal(size=(1, DIMENSION)).astype(np.float32))
        graph = Graph.open(run_path / "graph").add(passages={id_: f"passage {id_}"}, passage_vectors=vector)
        embeddings = update_embeddings(open_model(run_path / "model"), graph, run_path / "embeddings")
        update_index(embeddings, run_path / "index")
    elif number % 3 == 1:
        remove_passages(run_path / "index", [f"p{150 + number}"])
    else:
        build_index(open_embeddings(run_path / "embeddings"), run_path / "index", overwrite=True)


def _reload(server: Server, number: int) -> None:
    """Reload in turn by SIGHUP, by a request, or not at all, so that the server notices the change by watching."""
    if number % 3 == 0:
        server.process.send_signal(signal.SIGHUP)
    elif number % 3 == 1:
        server.ask("POST", "/reload", timeout=60, token=_TOKEN)


def _damages(work: Path, trials: int) -> list[dict[str, Any]]:
    """Damage the index of a running server in each way, and reload it."""
    run_, token = make_run(work / "run"), _token(work)
    rows = []
    for name, damage in list(DAMAGES.items())[:trials]:
        run_path = _copy_of(run_, work / "damaged")
        with Server(run_path, work / "damaged.log", "--token-file", str(token), "--rate", "0") as server:
            requests = [_request(np.random.default_rng((SEED, number))) for number in range(40)]
            before = [_plain(_asked(server, *request)) for request in requests]
            damage(run_path)
            status, answer, _ = server.ask("POST", "/reload", timeout=60, token=_TOKEN)
            after = [_plain(_asked(server, *request)) for request in requests]
            told = _health(server).get("reload") or {}
            failures = (status != 409) + sum(old != new for old, new in zip(before, after, strict=True))
            failures += not told.get("failed")
            if status != 409:
                print(f"{name}: {status} {answer}")
        rows.append(
            {
                "trial": name,
                "requests": len(requests),
                "reloads": 1,
                "versions named": 1,
                "errors": 0,
                "not of their version": 0,
                "descriptors more": 0,
                "failures": int(failures),
            }
        )
    return rows


def _asked(server: Server, path: str, body: Any) -> tuple[int, Any]:
    return server.ask("POST" if body else "GET", path, body, token=_TOKEN)[:2]


def _plain(answer: tuple[int, Any]) -> tuple[int, Any]:
    return answer[0], {name: value for name, value in answer[1].items() if name != "milliseconds"}


def _health(server: Server) -> dict[str, Any]:
    with contextlib.suppress(OSError):
        return dict(server.ask("GET", "/health", token=_TOKEN)[1])
    return {}


def ask_text(server: Server, path: str) -> str:
    """The answer at ``path`` as text, where it is not JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers={"authorization": f"Bearer {_TOKEN}"})
    return connection.getresponse().read().decode()


def _has_version(server: Server, version: str) -> bool:
    return bool(_health(server).get("version") == version)


def _are_as_many(answers: list[tuple[Any, ...]], count: int) -> bool:
    return len(answers) >= count


def _until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)


def _token(work: Path) -> Path:
    file = work / "token"
    file.write_text(_TOKEN, encoding="utf-8")
    file.chmod(0o600)
    return file


def _copy_of(run_path: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(run_path, place)


def _put(file: Path, content: bytes) -> None:
    """Replace a file by a new one, as a copy that went wrong would."""
    file.unlink()
    file.write_bytes(content)


def _cut(name: str) -> Callable[[Path], None]:
    def cut(run_path: Path) -> None:
        own = (run_path / name).read_bytes()
        _put(run_path / name, own[: len(own) // 2])

    return cut


def _meta(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(run_path: Path) -> None:
        file = run_path / name / "meta.json"
        _put(file, json.dumps(json.loads(file.read_text("utf-8")) | changes).encode())

    return change


DAMAGES: dict[str, Callable[[Path], None]] = {
    "vectors cut": _cut("index/index.faiss"),
    "texts cut": _cut("index/texts.sqlite"),
    "index gone": lambda run_path: shutil.rmtree(run_path / "index"),
    "all gone": shutil.rmtree,
    "meta.json cut": _cut("index/meta.json"),
    "graph's edges cut": _cut("graph/passage_edges.npy"),
    "graph's texts cut": _cut("graph/texts.sqlite"),
    "no model": lambda run_path: shutil.rmtree(run_path / "model"),
    "graph of another version": _meta("graph", hash="0" * 64),
    "embeddings of another version": _meta("embeddings", hash="0" * 64),
    "format of a later program": _meta("index", format_version=99),
    "no embeddings": lambda run_path: shutil.rmtree(run_path / "embeddings"),
}
