"""Run commands as a user does: through ``main``, with the real exit codes and the real standard error."""

import contextlib
import io
import json
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gnnretrieval.cli import main

TRAIN = ("--epochs", "3", "--batch-size", "8")


class Outcome(NamedTuple):
    """What a command left on the terminal.

    Attributes:
        code: Exit code; -1 where an exception came through, which would have been a traceback.
        out: Standard output.
        err: Standard error.
    """

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, parsed."""
        return json.loads(self.out)


Command = Callable[..., Outcome]


@pytest.fixture(scope="session")
def gnnretrieval() -> Command:
    """``gnnretrieval("graph", "inspect", path)`` runs that command in this process."""

    def command(*words: object) -> Outcome:
        out, err, code = io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(sys, "argv", ["gnnretrieval", *map(str, words)])
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except Exception:
                code = -1
                traceback.print_exc(file=err)
        return Outcome(code, out.getvalue(), err.getvalue())

    return command


@pytest.fixture(scope="session")
def succeeds(gnnretrieval: Command) -> Command:
    """The same for a command that must succeed."""

    def command(*words: object) -> Outcome:
        outcome = gnnretrieval(*words)
        assert outcome.code == 0, outcome.err
        return outcome

    return command


@pytest.fixture(scope="session")
def refuses(gnnretrieval: Command) -> Command:
    """The same for a command that must refuse its input (law 7): one sentence, exit code 1 or 2, no traceback.

    Keywords:
        says: Fragments that the sentence must have.
        out: Where the command would have put an artifact: nothing may be there.
    """

    def command(*words: object, says: tuple[object, ...] = (), out: Path | None = None) -> Outcome:
        outcome = gnnretrieval(*words)
        assert outcome.code in (1, 2), f"exit code {outcome.code}\n{outcome.err}"
        assert "Traceback" not in outcome.err
        assert outcome.out == ""
        lines = outcome.err.splitlines()
        (error,) = (line for line in lines if line.startswith("Error: "))
        assert lines[-1] == error, "the error is one line, and the last one"
        assert error[-1] in ".?)", error
        for fragment in says:
            assert str(fragment) in error, f"{fragment!r} is not in {error!r}"
        if out is not None:
            assert not out.exists()
            assert not (out.with_name(f".{out.name}.partial") / "meta.json").exists()
        return outcome

    return command


class Made(NamedTuple):
    """What :func:`made` made, and what each command said."""

    data: Path
    features: Path
    graph: Path
    model: Path
    embeddings: Path
    index: Path
    baseline_index: Path
    said: dict[str, Outcome]


@pytest.fixture(scope="session")
def made(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory, succeeds) -> Made:
    """One of each artifact of the tiny dataset, each by its command. Shared: copy before you change one."""
    data = tiny_dataset
    features, graph, model, embeddings, index, baseline = (
        tmp_path_factory.mktemp("made") / name
        for name in ("features", "graph", "model", "embeddings", "index", "index-dual-encoder")
    )
    encoder = ("--checkpoint", tiny_checkpoint, "--precision", "float32")
    said = {
        "encode": succeeds("encoder", "encode", data, *encoder, "--out", features),
        "graph build": succeeds("graph", "build", data, features, "--out", graph),
        "train": succeeds("train", graph, *TRAIN, "--out", model),
        "embed": succeeds("embed", model, "--out", embeddings),
        "index build": succeeds("index", "build", embeddings, "--out", index),
        "index build of features": succeeds("index", "build", features, "--out", baseline),
    }
    return Made(data, features, graph, model, embeddings, index, baseline, said)


@pytest.fixture(scope="session")
def runs(made: Made, tmp_path_factory: pytest.TempPathFactory, succeeds) -> dict[str, Path]:
    """The TREC runs of the test split, by system."""
    directory = tmp_path_factory.mktemp("runs")
    systems = {
        "dual-encoder": ("--index", made.baseline_index),
        "gnn-encoder": ("--index", made.index),
        "bm25": ("--bm25",),
    }
    files = {name: directory / f"{name}.run" for name in systems}
    for name, how in systems.items():
        outcome = succeeds("search", *how, "--data", made.data, "--run", files[name])
        assert f"10 queries by {name}" in outcome.out
    return files


@pytest.fixture
def dataset(tiny_dataset: Path, tmp_path: Path) -> Path:
    """A copy of the tiny dataset that a test may spoil."""
    return shutil.copytree(tiny_dataset, tmp_path / "dataset")


@pytest.fixture(scope="session")
def recipe_text(tiny_dataset: Path, tiny_checkpoint: Path) -> str:
    """A recipe over the tiny dataset; its lines are numbered in tests, so append only."""
    return f"""\
name = "tiny"

[data]
source = "{tiny_dataset}"

[encoder]
checkpoint = "{tiny_checkpoint}"
precision = "float32"
window = 5

[graph]
k = 5

[train]
epochs = 30
batch_size = 2
learning_rate = 0.02
weight_averaging = 0.5
evidence = 1.0
"""
