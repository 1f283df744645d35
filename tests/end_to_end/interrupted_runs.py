"""Run a recipe, interrupt it at several moments, run it again: ``python interrupted_runs.py DIRECTORY`` prints JSON.

Not a test itself: importing torch takes seconds, so one process does it and each run of the recipe is a fork.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import bm25s  # noqa: F401
import faiss  # noqa: F401
import sentence_transformers  # noqa: F401
import torch

import gnnretrieval.recipes.report  # noqa: F401
from gnnretrieval.cli import main

torch.set_num_threads(1)


def start(directory: Path, name: str) -> int:
    """Start the recipe into ``directory/name``; its output goes to ``directory/name.log``. Returns the process id."""
    process = os.fork()
    if process:
        return process
    log = os.open(directory / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in what it starts with &
    sys.argv = ["gnnretrieval", "run", str(directory / "r.toml"), "--out", str(directory / name)]
    code: Any = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code or 0)


def finish(process: int) -> int:
    """Exit code of a process, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def interrupted(directory: Path, name: str, sign: signal.Signals, moment: Callable[[Path], bool]) -> dict[str, Any]:
    """Start, interrupt at the moment, leave what an unlucky save would leave, and run again."""
    process = start(directory, name)
    limit = time.monotonic() + 60
    while not moment(directory / name) and time.monotonic() < limit:
        time.sleep(0.0005)
    os.kill(process, sign)
    told: dict[str, Any] = {"interrupted": finish(process)}
    told["last words"] = (directory / f"{name}.log").read_text(encoding="utf-8")
    if name == "saving":  # safetensors writes into such a file, then renames it
        (directory / name / ".model.partial" / ".tmpAbCdEf").write_bytes(b"half of a checkpoint")
    told["code"] = finish(start(directory, name))
    told["log"] = (directory / f"{name}.log").read_text(encoding="utf-8")
    return told


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
    report = {"unbroken": {"code": finish(start(place, "unbroken"))}}
    report["unbroken"]["log"] = (place / "unbroken.log").read_text(encoding="utf-8")
    report["encoding"] = interrupted(place, "encoding", signal.SIGKILL, encoding)
    report["training"] = interrupted(place, "training", signal.SIGKILL, epochs(4))
    report["saving"] = interrupted(place, "saving", signal.SIGKILL, epochs(2))
    report["stopped"] = interrupted(place, "stopped", signal.SIGINT, epochs(6))
    print(json.dumps(report))
