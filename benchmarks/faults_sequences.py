"""Random sequences of additions, updates, removals, judgements, kills and reopening, compared with a single build."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # few_steps comes from the tests

import numpy as np
from fault_calls import Kill, watch
from fault_process import copy, delete, in_fork
from numpy.typing import NDArray

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.verifying import verify

if TYPE_CHECKING:
    from gnnretrieval.graph import Graph

SEQUENCES, LENGTH = 500, 8
DIMENSION, EARLY_PASSAGES, PASSAGES, EARLY_QUERIES, QUERIES = 16, 40, 60, 30, 60
_CALLS = 80  # a kill is drawn among so many calls; a step with fewer calls may end before it
_SHOWN = 5  # failures that are printed
_SETTINGS: dict[str, dict[str, Any]] = {
    "scores and ranks": {"k": 4, "edge_features": ("score", "reciprocal_rank")},
    "all cheap features": {"k": 5},
    "no label edges": {"k": 3, "label_edges": False, "edge_features": ("score",)},
}


class Corpus(NamedTuple):
    """Passages and queries, of which the last are added later.

    Attributes:
        passages: Records of ``corpus.jsonl``.
        queries: Records of ``queries.jsonl``.
        vectors: Vectors ``(60, 16)`` of the passages and of the queries.
        judged: By early query, its relevant passage with grade 1.
    """

    passages: list[dict[str, str]]
    queries: list[dict[str, str]]
    vectors: dict[str, NDArray[np.float32]]
    judged: dict[str, dict[str, int]]


def make_corpus() -> Corpus:
    """Texts of made-up words and random vectors; a query's vector is near its passage's."""
    draw, numbers = random.Random(0), np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ra", "so", "ti", "vu")]
    texts = [" ".join(draw.choices(words, k=6)) for _ in range(PASSAGES + QUERIES)]
    passages = [{"_id": f"p{n:02d}", "title": "", "text": text} for n, text in enumerate(texts[:PASSAGES])]
    queries = [{"_id": f"q{n:02d}", "text": text} for n, text in enumerate(texts[PASSAGES:])]
    vectors = numbers.standard_normal((PASSAGES, DIMENSION)).astype(np.float32)
    near = vectors[np.arange(QUERIES) % EARLY_PASSAGES]
    query_vectors = (near + numbers.standard_normal(near.shape)).astype(np.float32)
    judged = {f"q{n:02d}": {f"p{n % EARLY_PASSAGES:02d}": 1} for n in range(EARLY_QUERIES)}
    return Corpus(passages, queries, {"passages": vectors, "queries": query_vectors}, judged)


class Story:
    """One sequence of steps on a graph, its embeddings and its index.

    Args:
        corpus: Passages and queries that can be added.
        base: Directory of the artifacts at the beginning.
        work: Directory of their copies, which are changed.
        seed: Seed of every draw.
    """

    def __init__(self, corpus: Corpus, base: Path, work: Path, seed: str) -> None:
        self.corpus, self.base, self.work, self.draw = corpus, base, work, random.Random(seed)
        self.passages, self.queries = EARLY_PASSAGES, EARLY_QUERIES
        self.judged = {query: dict(grades) for query, grades in corpus.judged.items()}
        self.removed: list[str] = []
        self.done: list[str] = []
        self._number = 0
        for name in ("graph", "embeddings", "index"):
            copy(base / name, work / name)

    def step(self) -> None:
        """Run a random step; every other one, by chance, is first killed at a random call."""
        name = self.draw.choice(("add", "add", "add", "judge", "embed", "index", "remove", "reopen"))
        action = getattr(self, f"_{name}")()
        if self.draw.random() < 0.5:
            at = self.draw.randrange(_CALLS)

            def dying() -> None:
                watch(Kill(at))
                action()

            killed = in_fork(dying, self.work / "log") == -signal.SIGKILL
            name += f", killed at call {at}" if killed else ""
        self.done.append(name)
        action()

    def _add(self) -> Callable[[], None]:
        rows = self._next(self.draw.randint(0, 4), self.draw.randint(0, 3))
        judged = {f"q{n:02d}": {f"p{self.draw.randrange(self.passages):02d}": 1} for n in rows["queries"]}
        return self._growth(rows, judged)

    def _next(self, queries: int, passages: int) -> dict[str, range]:
        """Rows of the next queries and passages, fewer if no more are left."""
        rows = {
            "passages": range(self.passages, min(PASSAGES, self.passages + passages)),
            "queries": range(self.queries, min(QUERIES, self.queries + queries)),
        }
        self.passages, self.queries = rows["passages"].stop, rows["queries"].stop
        return rows

    def _judge(self) -> Callable[[], None]:
        """A new passage, perhaps a new query, and judgements of known queries, some of which change earlier ones."""
        rows, judged = self._next(self.draw.randint(0, 1), 1), dict[str, dict[str, int]]()
        for _ in range(self.draw.randint(1, 3)):
            query = self.draw.choice(sorted(self.judged))
            known = self.judged[query]
            passage = f"p{self.draw.randrange(self.passages):02d}"
            value = 0 if passage in known and sum(known.values()) > 1 else 1
            judged.setdefault(query, {})[passage] = value
        for row in rows["queries"]:
            judged[f"q{row:02d}"] = {f"p{self.draw.randrange(self.passages):02d}": 1}
        return self._growth(rows, judged if any(rows.values()) else {})

    def _growth(self, rows: dict[str, range], judged: dict[str, dict[str, int]]) -> Callable[[], None]:
        self._number += 1
        place = self.work / f"addition-{self._number}"
        place.mkdir()
        for query, grades in judged.items():
            self.judged.setdefault(query, {}).update(grades)
        given: dict[str, Any] = {}
        for name, records in (("passages", self.corpus.passages), ("queries", self.corpus.queries)):
            if rows[name]:
                _write_lines(place / f"{name}.jsonl", [records[row] for row in rows[name]])
                np.save(place / f"{name}.npy", self.corpus.vectors[name][list(rows[name])])
                given |= {
                    name: place / f"{name}.jsonl",
                    f"{name[:-1].replace('ie', 'y')}_vectors": place / f"{name}.npy",
                }
        if judged:
            _write_qrels(place / "qrels.tsv", judged)
            given["qrels"] = place / "qrels.tsv"

        def add() -> None:
            from gnnretrieval.graph.growth.add import add_to_graph
            from gnnretrieval.graph.growth.additions import read_additions
            from gnnretrieval.graph.store import open_graph

            if given:
                additions = read_additions(open_graph(self.work / "graph"), **given)
                if additions is not None:
                    add_to_graph(self.work / "graph", additions)

        return add

    def _embed(self) -> Callable[[], None]:
        from gnnretrieval.graph.store import open_graph
        from gnnretrieval.training.gnn.embeddings import update_embeddings
        from gnnretrieval.training.gnn.model import open_model

        def embed() -> None:
            update_embeddings(
                open_model(self.base / "model"), open_graph(self.work / "graph"), self.work / "embeddings"
            )

        return embed

    def _index(self) -> Callable[[], None]:
        from gnnretrieval.index.updating import update_index
        from gnnretrieval.training.gnn.embeddings import open_embeddings

        def index() -> None:
            update_index(open_embeddings(self.work / "embeddings"), self.work / "index")

        return index

    def _remove(self) -> Callable[[], None]:
        from gnnretrieval.index.updating import remove_passages

        ids = self.draw.sample([f"p{row:02d}" for row in range(EARLY_PASSAGES)], self.draw.randint(1, 3))
        self.removed += ids

        def remove() -> None:
            remove_passages(self.work / "index", ids)

        return remove

    def _reopen(self) -> Callable[[], None]:
        def reopen() -> None:
            damaged = verify([self.work / name for name in ("graph", "embeddings", "index")]).damaged
            if damaged:
                raise GnnRetrievalError(damaged[0])

        return reopen

    def end(self) -> list[str]:
        """Bring everything up to date, build the same at once, and return the differences."""
        from gnnretrieval.data import Dataset
        from gnnretrieval.encoders.vectors import import_vectors
        from gnnretrieval.graph import GraphSettings, build_graph, open_graph
        from gnnretrieval.index import build_index, open_index
        from gnnretrieval.index.updating import remove_passages
        from gnnretrieval.training import embed_passages
        from gnnretrieval.training.gnn.model import open_model

        for last in (self._embed(), self._index(), self._reopen()):
            last()
        grown, index = open_graph(self.work / "graph"), open_index(self.work / "index")
        at_once = self.work / "at-once"
        files, settings = write_dataset(self.corpus, at_once, self.passages, self.queries, self.judged)
        dataset = Dataset.open(at_once)
        features = import_vectors(dataset, *files, settings, at_once / "features")
        built = build_graph(dataset, features, GraphSettings.parse(grown.config), at_once / "graph")
        embedded = embed_passages(open_model(self.base / "model"), grown, at_once / "embeddings")
        fresh = build_index(embedded, at_once / "index")
        if self.removed:
            fresh = remove_passages(fresh.path, sorted(set(self.removed)))
        faults = differences(grown, built)
        ours = self.work / "embeddings" / "passages.npy"
        if ours.read_bytes() != (embedded.path / "passages.npy").read_bytes():
            faults.append("embeddings differ")
        vectors = np.asarray(embedded.passages, dtype=np.float32)
        rows, scores = index.search(vectors, self.passages)
        expected_rows, expected_scores = fresh.search(vectors, self.passages)
        if not (np.array_equal(rows, expected_rows) and np.array_equal(scores, expected_scores)):
            faults.append("the index finds another")
        if index.removed.tolist() != fresh.removed.tolist() or index.texts.passage_ids() != fresh.texts.passage_ids():
            faults.append("the index has other passages")
        left = [path.name for path in self.work.iterdir() if path.name.startswith(".")]
        return [*faults, *(["left over: " + ", ".join(left)] if left else [])]


def differences(grown: Graph, built: Graph) -> list[str]:
    """Descriptions of the arrays and texts in which two graphs differ."""
    names = {name for name in built.meta["files"] if name.endswith(".npy")}
    ours = {name for name in grown.meta["files"] if name.endswith(".npy") and not name.startswith("changes/")}
    faults = [f"{name} is in one graph alone" for name in sorted(names ^ ours)]
    for name in sorted(names & ours):
        if (grown.path / name).read_bytes() != (built.path / name).read_bytes():
            faults.append(f"{name} differs")
    with grown.texts() as ours_texts, built.texts() as built_texts:
        for name in ("passages", "queries", "qrels"):
            if list(getattr(ours_texts, name)()) != list(getattr(built_texts, name)()):
                faults.append(f"{name} differ")
    return faults


def write_dataset(
    corpus: Corpus, place: Path, passages: int, queries: int, judged: dict[str, dict[str, int]]
) -> tuple[tuple[Path, Path], Any]:
    """Write the first passages and queries as a dataset; returns files of their vectors, and import settings."""
    from gnnretrieval.encoders.vectors import VectorSettings

    (place / "qrels").mkdir(parents=True)
    _write_lines(place / "corpus.jsonl", corpus.passages[:passages])
    _write_lines(place / "queries.jsonl", corpus.queries[:queries])
    _write_qrels(place / "qrels" / "train.tsv", judged)
    files = place / "passages.npy", place / "queries.npy"
    np.save(files[0], corpus.vectors["passages"][:passages])
    np.save(files[1], corpus.vectors["queries"][:queries])
    return files, VectorSettings(name="made up", similarity="cosine")


def _write_lines(path: Path, records: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def _write_qrels(path: Path, judged: dict[str, dict[str, int]]) -> None:
    lines = [f"{query}\t{passage}\t{value}\n" for query, grades in judged.items() for passage, value in grades.items()]
    path.write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")


def make_base(corpus: Corpus, place: Path, settings: dict[str, Any]) -> None:
    """Make the artifacts that sequences start from: graph, model, embeddings, index."""
    from gnnretrieval.data import Dataset
    from gnnretrieval.encoders.vectors import import_vectors
    from gnnretrieval.graph import GraphSettings, build_graph
    from gnnretrieval.index import build_index
    from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
    from tests.few_steps import shorten

    shorten()
    files, how = write_dataset(corpus, place / "dataset", EARLY_PASSAGES, EARLY_QUERIES, corpus.judged)
    dataset = Dataset.open(place / "dataset")
    features = import_vectors(dataset, *files, how, place / "features")
    graph = build_graph(dataset, features, GraphSettings(**settings), place / "graph")
    model = train_gnn(graph, dataset, features, TrainSettings(), place / "model")
    build_index(embed_passages(model, graph, place / "embeddings"), place / "index")


def try_sequences(work: Path, name: str, count: int) -> tuple[Counter[str], list[str]]:
    """Run ``count`` sequences over the graph called ``name``; returns counts of the steps, and the failures."""
    import torch

    torch.set_num_threads(1)  # a fork keeps only the thread that made it
    os.fsync = lambda fd: None  # no power loss is simulated here
    delete(work)
    corpus, base = make_corpus(), work / "base"
    base.mkdir(parents=True)
    make_base(corpus, base, _SETTINGS[name])
    done, failures = Counter[str](), []
    with progress(name, count, "sequences") as meter:
        for number in range(count):
            place = work / "sequence"
            delete(place)
            place.mkdir()
            story = Story(corpus, base, place, f"{name} {number}")
            try:
                for _ in range(LENGTH):
                    story.step()
                faults = story.end()
            except GnnRetrievalError as error:
                faults = [str(error)]
            done.update("killed" if ", killed" in line else line for line in story.done)
            if faults:
                failures.append(f"sequence {number} ({'; '.join(story.done)}): {'; '.join(faults)}")
            meter.advance()
    delete(work)
    return done, failures


def run(work: Path, trials: int | None) -> dict[str, Any]:
    """Run the sequences."""
    rows = []
    for name in _SETTINGS:
        count = trials or -(-SEQUENCES // len(_SETTINGS))
        done, failures = try_sequences(work / name.replace(" ", "-"), name, count)
        for line in failures[:_SHOWN]:
            say(f"{name}: {line}")
        rows.append(
            {
                "graph": name,
                "sequences": count,
                "steps": sum(done.values()),
                "killed": done["killed"],
                "failures": len(failures),
            }
        )
    return {
        "title": "Random sequences against one build",
        "done": (
            f"{LENGTH} steps drawn from a seed: queries and passages added to a graph, judgements added and changed, "
            "embeddings and index brought up to it, passages removed from the index, everything opened and its "
            "sha256 checked; every other step was first killed at a random call. At the end every array and text of "
            "the graph must equal that of one build of the final dataset, byte for byte; embeddings (layer = linear) "
            "those of one pass over it; and the index must find what a new one does. Anything else is a failure."
        ),
        "rows": rows,
        "tried": sum(row["sequences"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
    }
