"""Run a recipe, once unbroken and once interrupted at four moments, and tell of both.

``python -m tests.end_to_end.interrupted_runs DIRECTORY`` prints JSON. The broken run goes on after each interruption,
so one run meets all of them. Not a test itself: one process imports torch, and each start of the recipe is a fork.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import bm25s  # noqa: F401
import faiss  # noqa: F401
import sentence_transformers  # noqa: F401

import gnnretrieval.recipes.report  # noqa: F401
from tests.forks import command, finish, start


def run_into(out: Path) -> Callable[[], None]:
    """The command that runs the recipe beside ``out`` into it."""
    return lambda: command("run", out.with_name("r.toml"), "--out", out)


def interrupted(directory: Path, name: str, sign: signal.Signals, moment: Callable[[Path], bool]) -> dict[str, Any]:
    """Start or continue the run ``broken``, interrupt it at the moment, and leave what an unlucky save would leave."""
    process = start(run_into(directory / "broken"), directory / f"{name}.log")
    limit = time.monotonic() + 60
    while not moment(directory / "broken") and time.monotonic() < limit:
        time.sleep(0.0005)
    os.kill(process, sign)
    told = {"code": finish(process), "log": (directory / f"{name}.log").read_text(encoding="utf-8")}
    if name == "saving":  # safetensors writes into such a file, then renames it
        (directory / "broken" / ".model.partial" / ".tmpAbCdEf").write_bytes(b"half of a checkpoint")
    return told


def whole(directory: Path, name: str) -> dict[str, Any]:
    """Run the recipe to its end."""
    code = finish(start(run_into(directory / name), directory / f"{name}.log"))
    return {"code": code, "log": (directory / f"{name}.log").read_text(encoding="utf-8")}


def epochs(count: int) -> Callable[[Path], bool]:
    """The moment at which so many epochs are in the log."""

    def reached(run: Path) -> bool:
        log = run / ".model.partial" / "log.jsonl"
        return log.exists() and log.read_bytes().count(b'"dev"') >= count

    return reached


def encoding(run: Path) -> bool:
    """The moment at which some windows are encoded."""
    return (run / ".features.partial" / "scratch" / "manifest.json").exists()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    report = {
        "unbroken": whole(place, "unbroken"),
        "encoding": interrupted(place, "encoding", signal.SIGKILL, encoding),
        "saving": interrupted(place, "saving", signal.SIGKILL, epochs(2)),
        "training": interrupted(place, "training", signal.SIGKILL, epochs(4)),
        "stopped": interrupted(place, "stopped", signal.SIGINT, epochs(6)),
        "broken": whole(place, "broken"),
    }
    print(json.dumps(report))
