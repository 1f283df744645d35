"""Every command, Python block and recipe of the README and the docs is run, or says why not."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from doc_pages import NOTEBOOKS, PAGES, ROOT, Block, blocks, commands

from gnnretrieval import Features
from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset

CHECKPOINTS = ("all-MiniLM-L6-v2", "multi-qa-mpnet-base-cos-v1")  # that pages name: here, the tests' tiny one
LANGUAGES = {"bash", "python", "toml", "json", "text", "dockerfile", "ini"}  # and MyST's directives, in braces
WORK = ("features", "graph", "model", "embeddings", "index")


def runs(command: str) -> None:
    """Run a command of a page in this process.

    Raises:
        GnnRetrievalError: the command fails.
    """
    words = shlex.split(command, comments=True)
    assert words[0] == "gnnretrieval", f"not a command of gnnretrieval: {command!r}; say why it is not run"
    words, said = (words[:-2], Path(words[-1])) if words[-2] == ">" else (words, Path(os.devnull))
    found = [sorted(map(str, Path().glob(word))) or [word] if "*" in word else [word] for word in words[1:]]
    with said.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        cli(args=[one for each in found for one in each], standalone_mode=False)


@pytest.fixture(scope="module")
def begun(tiny_dataset, tiny_checkpoint, tmp_path_factory) -> Path:
    """A directory as a reader of the README has it: `my-data`, and in `work` what the first five commands make."""
    place = tmp_path_factory.mktemp("reader") / "here"
    shutil.copytree(tiny_dataset, place / "my-data")
    for name in CHECKPOINTS:
        shutil.copytree(tiny_checkpoint, place / "sentence-transformers" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        checkpoint = f"sentence-transformers/{CHECKPOINTS[0]}"
        runs(f"gnnretrieval encoder encode my-data --checkpoint {checkpoint} --out work/features")
        for command in ("graph build my-data work/features", "train work/graph", "embed work/model"):
            runs(f"gnnretrieval {command}")
        runs("gnnretrieval index build work/embeddings")
    return place


@pytest.fixture
def reader(begun, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the current directory."""
    place = tmp_path / "here"
    shutil.copytree(begun, place, copy_function=os.link)
    monkeypatch.chdir(place)
    return place


def needed(what: str) -> None:
    """Make the files that a block says it needs."""
    if what == "vectors":
        features = Features.open("work/features")
        np.save("passages.npy", np.asarray(features.passages, dtype=np.float32))
        np.save("queries.npy", np.asarray(features.queries, dtype=np.float32))
        np.save("new-questions.npy", np.asarray(features.queries[:2], dtype=np.float32))
        Path("new-ids.txt").write_text("new-1\nnew-2\n")
    elif what == "runs":
        for run_file, split in (("bm25", "test"), ("dev-bm25", "dev")):
            runs(f"gnnretrieval search --bm25 --data my-data --split {split} --run {run_file}.run")
        for run_file, split in (("work/gnn-encoder", "test"), ("gnn-encoder", "test"), ("dev-gnn-encoder", "dev")):
            runs(f"gnnretrieval search --index work/index --data my-data --split {split} --run {run_file}.run")
        shutil.copy("bm25.run", "work/bm25.run")
    elif what == "additions":
        Path("clicks.jsonl").write_text('{"_id": "new-1", "text": "zu"}\n')
        Path("clicked.tsv").write_text("query-id\tcorpus-id\tscore\nnew-1\tp00\t1\n")
        Path("new-corpus.jsonl").write_text('{"_id": "new-passage", "title": "", "text": "zu ba"}\n')
    elif what == "withdrawn ids":
        Path("withdrawn.txt").write_text("p20\np21\n")
    elif what.startswith("without "):
        shutil.rmtree(what.removeprefix("without "), ignore_errors=True)
    else:
        raise AssertionError(f"no way to make {what!r}")


def objects() -> dict[str, object]:
    """The names that the pages' Python begins with."""
    dataset = Dataset.open("my-data")
    qrels = {name: dataset.split(name) for name in ("train", "dev", "test")}
    return {
        "passages": {one.id: one.text for one in dataset.passages()},
        "queries": {one.id: one.text for one in dataset.queries()},
        **qrels,
        "qrels": qrels["train"],
        "test_qrels": qrels["test"],
    }


def run(block: Block, names: dict[str, object]) -> None:
    if block.note == "file":
        path = Path(block.of_note)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
    if block.note == "needs":
        needed(block.of_note)
    if block.language == "bash":
        for command in commands(block.text):
            runs(command)
    elif block.language == "python":
        exec(compile(block.text, f"line {block.line}", "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_a_page_s_snippets_run(page, reader):
    names: dict[str, object] | None = None
    for block in blocks(page):
        if block.note != "not run":
            names = objects() if names is None and block.language == "python" else names
            try:
                run(block, names or {})
            except Exception as error:
                raise AssertionError(f"{page.relative_to(ROOT)}:{block.line}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_has_a_language_that_is_known(page):
    unknown = [(one.line, one.language) for one in blocks(page) if one.language not in LANGUAGES]
    assert [one for one in unknown if not one[1].startswith("{")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_recipe_is_toml(page):
    for block in blocks(page):
        if block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_has_the_options_it_names(page):
    for block in blocks(page):
        for line in commands(block.text) if block.language == "bash" else ():
            if line.startswith("gnnretrieval "):
                check(shlex.split(line, comments=True)[1:], f"{page.relative_to(ROOT)}:{block.line}")


def check(words: list[str], where: str) -> None:
    """Fail if a command or an option of it does not exist."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        assert name in command.commands, f"{where}: there is no command {name}"
        command = command.commands[name]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    assert wrong == [], f"{where}: {command.name} has no {', '.join(wrong)}"


def test_a_misspelt_option_is_noticed():
    with pytest.raises(AssertionError, match="has no --lair"):
        check(["train", "work/graph", "--lair", "gat"], "here")


def test_notebooks_are_python():
    assert len(NOTEBOOKS) == 3
    for page in NOTEBOOKS:
        cells = [one for one in blocks(page) if one.language == "{code-cell}"]
        assert cells
        for cell in cells:
            compile(cell.text, f"{page.name}:{cell.line}", "exec")
