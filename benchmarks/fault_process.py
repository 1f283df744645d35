"""Run commands in forks of this process, which has imported everything, and compare what they leave."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from gnnretrieval.storage.provenance import git_revision, library_versions

Run = Callable[[Path], object]  # makes something at a path
DATED = ("made", "seconds", "git_revision", "versions", "measured", "checksum")  # of a meta.json: differ in every run


def in_fork(action: Callable[[], object], log: Path) -> int:
    """Run ``action`` in a fork, with its output in ``log``; returns its exit code, negative if a signal ended it."""
    sys.stdout.flush()
    git_revision(), library_versions()  # looked up here once, and not in every fork
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.fsync = lambda fd: None  # the calls matter here, and waiting for the disk does not
    code: Any = 0
    try:
        action()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def command_line(*words: object) -> None:
    """Run the command line in this process, as a user does."""
    from gnnretrieval.cli import main

    sys.argv = ["gnnretrieval", *map(str, words)]
    main()


def import_what(action: Callable[[], object], log: Path) -> int:
    """Run ``action`` in a fork, then import here every module that it imported; returns its exit code."""
    names = log.with_suffix(".modules")

    def noting() -> None:
        try:
            action()
        finally:
            names.write_text("\n".join(sys.modules), encoding="utf-8")

    code = in_fork(noting, log)
    for name in names.read_text(encoding="utf-8").splitlines():
        if name not in sys.modules and not name.startswith("_"):
            with suppress(Exception):
                importlib.import_module(name)
    return code


def content(place: Path) -> dict[str, Any]:
    """Content of a file, or of every file in a directory, by name; without dates, versions and measured times."""
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): _undated(path) for path in files}


def _undated(path: Path) -> Any:
    if path.name == "meta.json":
        meta = json.loads(path.read_text(encoding="utf-8"))
        kept = {key: value for key, value in meta.items() if key not in DATED}
        if meta["kind"] == "rankings":
            kept["inputs"] = sorted(kept["inputs"])
        return kept
    if path.name.startswith("comparison") and path.suffix == ".json":
        comparison = json.loads(path.read_text(encoding="utf-8"))
        return {key: comparison[key] for key in ("systems", "tests")}
    if path.name == "report.html":
        return path.name  # its figures are those of the files beside it
    return path.read_bytes()


def difference(actual: dict[str, Any], expected: dict[str, Any]) -> str:
    """Names of the files that differ."""
    return ", ".join(sorted(name for name in {*actual, *expected} if actual.get(name) != expected.get(name)))


def run_again(run: Run, place: Path, log: Path, expected: dict[str, Any]) -> list[str]:
    """Run once more, in a fork; returns what is wrong: its exit code, another result, or files left beside it."""
    faults = []
    if code := in_fork(partial(run, place), log):
        faults.append(f"exit code {code}: {log.read_text(encoding='utf-8')[-300:]}")
    elif (actual := content(place)) != expected:
        faults.append(f"differs in {difference(actual, expected)}")
    if left := [path.name for path in place.parent.iterdir() if path != place]:
        faults.append(f"left over: {', '.join(left)}")
    return faults


def delete(place: Path) -> None:
    """Delete a file or a directory, if it is there."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def copy(base: Path, place: Path) -> None:
    """Copy a file or a directory."""
    if base.is_dir():
        shutil.copytree(base, place)
    else:
        shutil.copyfile(base, place)
