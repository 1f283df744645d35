"""Every command that writes, with tiny inputs, for the trials of kills and of power losses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the inputs come from the tests
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from fault_process import command_line, copy, delete, import_what

from tests.conftest import write_checkpoint, write_cross_encoder, write_dataset
from tests.few_steps import shorten

OUT = "OUT"  # placeholder for the path of a command's output


class Command(NamedTuple):
    """A command.

    Attributes:
        name: Its name in the trials.
        words: Its words on the command line.
        base: The artifact that is at its output path before; None: none.
    """

    name: str
    words: tuple[object, ...]
    base: Path | None = None

    def run(self, place: Path) -> None:
        """Run the command in this process, with ``place`` as its output path."""
        command_line(*(place if word == OUT else word for word in self.words))


def commands(work: Path) -> list[Command]:
    """Make the inputs in ``work``, run every command once, and import all modules that they import."""
    delete(work)
    work.mkdir(parents=True)
    os.environ["TMPDIR"] = str(work)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)  # a fork keeps only the thread that made it
    shorten()
    _require(import_what(lambda: _write_inputs(work), work / "inputs.log"), work / "inputs.log")
    all_commands: list[Command] = []

    def add(name: str, *words: object, base: str | None = None) -> Path:
        """Add a command and run it; returns the path of its output, for later commands."""
        place = work / name.replace(" ", "-")
        command = Command(name, words, None if base is None else work / base)
        all_commands.append(command)
        if command.base is not None:
            copy(command.base, place)
        log = place.with_suffix(".log")
        _require(import_what(lambda: command.run(place), log), log)
        return place

    data, vectors = work / "dataset", ("--checkpoint", work / "bert", "--precision", "float32", "--window", 16)
    new = ("--queries", work / "queries.jsonl", "--passages", work / "corpus.jsonl", "--qrels", work / "qrels.tsv")
    pairs = ("--edge-vectors", "cross-encoder", "--cross-encoder", work / "cross-encoder", "--pair-tokens", 32)
    sources = (data / "corpus.jsonl", data / "queries.jsonl", f"qrels@train={data}/qrels/train.tsv")
    add("data import", "data", "import", *sources, "--out", OUT)
    features = add("encoder encode", "encoder", "encode", data, *vectors, "--out", OUT)
    graph = add("graph build", "graph", "build", data, features, "--k", 5, "--out", OUT)
    add("graph build with edge vectors", "graph", "build", data, features, "--k", 3, *pairs, "--out", OUT)
    other = (data, features, "--k", 4, "--overwrite")
    add("graph build over another", "graph", "build", *other, "--out", OUT, base=graph.name)
    grown = add("graph add", "graph", "add", OUT, *new, base=graph.name)
    add("graph add with edge vectors", "graph", "add", OUT, *new, base="graph-build-with-edge-vectors")
    model = add("train", "train", graph, "--out", OUT)
    add("train a GAT", "train", graph, "--layer", "gat", "--epochs", 3, "--batch-size", 16, "--out", OUT)
    embeddings = add("embed", "embed", model, "--out", OUT)
    changed = add("embed --changed", "embed", model, "--graph", grown, "--changed", "--out", OUT, base=embeddings.name)
    index = add("index build", "index", "build", embeddings, "--out", OUT)
    add("index build of lists", "index", "build", embeddings, "--factory", "IVF4,SQ8", "--out", OUT)
    add("index build --changed", "index", "build", changed, "--changed", "--out", OUT, base=index.name)
    add("index remove", "index", "remove", OUT, "p03", "p17", base=index.name)
    add("baselines", "baselines", graph, "--out", OUT)
    add("mine negatives", "mine", "negatives", data, "--features", features, "--out", OUT)
    run = add("search to a run", "search", "--index", index, "--data", data, "--run", OUT)
    add("search to a run, again", "search", "--index", index, "--data", data, "--depth", 5, "--run", OUT, base=run.name)
    add("evaluate to a file", "evaluate", run, "--data", data, "--out", OUT)
    add("fuse", "fuse", run, run, "--out", OUT)
    add("run a recipe", "run", work / "recipe.toml", "--out", OUT)
    return all_commands


def _require(code: int, log: Path) -> None:
    if code:
        raise RuntimeError(log.read_text(encoding="utf-8"))


def _write_inputs(work: Path) -> None:
    bert = write_checkpoint(work / "bert")
    write_cross_encoder(work / "cross-encoder", bert.with_name("bert-bert"))
    data = write_dataset(work / "dataset")
    rows: dict[str, list[dict[str, Any]]] = {
        "corpus.jsonl": [
            {"_id": f"new-{n}", "title": "", "text": text} for n, text in enumerate(("zu ba do", "ba bu"))
        ],
        "queries.jsonl": [{"_id": f"click-{n}", "text": text} for n, text in enumerate(("zu", "zu zu", "ba"))],
    }
    for name, records in rows.items():
        (work / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (work / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nclick-0\tnew-0\t1\nclick-1\tp00\t1\n")
    (work / "recipe.toml").write_text(
        f'name = "tiny"\n[data]\nsource = "{data}"\n[encoder]\ncheckpoint = "{bert}"\nprecision = "float32"\n'
        "[graph]\nk = 5\n[train]\nepochs = 3\nbatch_size = 16\n"
    )
