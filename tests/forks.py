"""Runs of one call in processes forked from this one, which has imported torch once: an import takes seconds.

For a script of its own process, as in ``python -c``: a process that has computed gradients must not fork.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from torch.distributed import TCPStore

from gnnretrieval.cli import main

ROOT = Path(__file__).resolve().parents[1]  # where such a script is started


def command(*words: object) -> None:
    """Run a command of gnnretrieval."""
    sys.argv = ["gnnretrieval", *map(str, words)]
    main()


def start(call: Callable[[], None], log: Path, **environment: str) -> int:
    """Start ``call`` in a process that writes what it says into ``log``. Returns the process id."""
    process = os.fork()
    if process:
        return process
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in what it starts with &
    code = 0
    try:
        call()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def finish(process: int) -> int:
    """Exit code of a process, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def as_two(call: Callable[[], None], logs: Path) -> list[int]:
    """As :func:`as_ranks`, of two processes."""
    return as_ranks(call, logs, 2)


def as_ranks(call: Callable[[], None], logs: Path, count: int) -> list[int]:
    """Exit codes of the processes that are the ranks of one run, as torchrun starts them; it keeps the store too."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    ranks = [start(call, logs / f"{rank}.log", RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(count)]
    return [finish(rank) for rank in ranks]
