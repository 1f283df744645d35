"""Processes of one run join, speak and part."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import click
import pytest
import torch.distributed as dist
from torch.distributed.run import get_args_parser

from gnnretrieval.cli import cli
from gnnretrieval.training.ranks import of_this_start
from tests.forks import ROOT

RANK = """
import sys
from pathlib import Path
import torch
from gnnretrieval.training.ranks import started_ranks
from tests.forks import as_two

def threads():
    return sorted(name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm"))

def rank():
    with started_ranks("cpu") as ranks:
        parameter = torch.nn.Parameter(torch.ones(3))
        torch.optim.AdamW([parameter])  # imports much of torch, which may keep the group
        parameter.sum().backward()
        ranks.sum_gradients([parameter])
        agreed = ranks.agree({"rank": ranks.rank})
        joined = threads()
    print(ranks.rank, parameter.grad.tolist(), agreed, file=open(f"{sys.argv[1]}/{ranks.rank}.said", "w"))
    print(*joined, sep="\\n", file=open(f"{sys.argv[1]}/{ranks.rank}.joined", "w"))
    print(*threads(), sep="\\n", file=open(f"{sys.argv[1]}/{ranks.rank}.parted", "w"))

assert as_two(rank, Path(sys.argv[1])) == [0, 0], Path(sys.argv[1], "0.log").read_text()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_ranks_speak_and_leave_no_thread_behind(tmp_path):
    done = subprocess.run([sys.executable, "-c", RANK, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in (0, 1):
        assert (tmp_path / f"{rank}.said").read_text() == f"{rank} [2.0, 2.0, 2.0] {{'rank': 0}}\n"
        joined, parted = ((tmp_path / f"{rank}.{when}").read_text().splitlines() for when in ("joined", "parted"))
        assert len(joined) > len(parted)
        assert not [name for name in parted if "gloo" in name]


def test_processes_that_are_started_again_read_nothing_that_those_before_them_wrote():
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=20))
    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda rank: of_this_start(store, rank, 3), range(3)))
        assert not parts[0].check(["word"])
        for number, part in enumerate(parts):
            part.set(f"word/{number}", "said")
        assert all(part.check([f"word/{number}" for number in range(3)]) for part in parts)
        parts[0].set("word", "said")


@pytest.mark.parametrize("words", [("train",), ("encoder", "train")], ids=" ".join)
def test_torchrun_takes_no_option_of_a_training_command_for_its_own(words):
    command = cli
    for word in words:
        command = command.commands[word]
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert len(options) > 5
    given = [*words, *(part for option in options for part in (option.opts[0], "value"))]
    parsed = get_args_parser().parse_args(["--nproc-per-node=2", "-m", "gnnretrieval", *given])
    assert (parsed.nproc_per_node, parsed.training_script_args) == ("2", given)
