"""The processes of one training run: started by ``torchrun`` or ``accelerate launch``, or just this one."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported before there is a group: its functions keep the group of that time
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gnnretrieval.training.first_process import FirstProcess, ProcessGoneError

_TIMEOUT = timedelta(minutes=10)  # of a collective operation; none takes as long
_PAUSE = 0.01  # seconds between two looks for the other processes


class Ranks:
    """Cross-batch negatives need two sums over the processes: of vectors, each made by one, and of gradients.

    Attributes:
        rank: Number of this process.
        count: Number of processes.
        first_process: What the first process says to all; None: there is no other.
    """

    def __init__(self, rank: int = 0, count: int = 1, first_process: FirstProcess | None = None) -> None:
        self.rank, self.count, self.first_process = rank, count, first_process

    called = False  # whether the others were called to the job

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def calling(self, job: str) -> Ranks:
        """These processes; the first one calls the others to ``job`` when it begins."""
        return _Calling(self, job) if self.first and self.count > 1 else self

    def begin(self) -> None:
        """Called by the first process as it begins what all do together."""

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over the processes, in place."""
        if self.count > 1:
            with _all_present():
                dist.all_reduce(tensor)
        return tensor

    def share(self, total: int) -> slice:
        """The part of ``0 … total - 1`` that is this process's."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def rows_of_all(self, own: Tensor, total: int) -> Tensor:
        """Rows ``(total, d)`` of all processes, from each one's :meth:`share` ``(s, d)``.

        Only this process's rows carry a gradient. Summed over the processes, it is that of one process with all rows.
        """
        if self.count == 1:
            return own
        place = self.share(total)
        rows = torch.zeros((total, own.shape[1]), dtype=own.dtype, device=own.device)
        rows[place] = own.detach()
        self.sum_(rows)
        return torch.cat([rows[: place.start], own, rows[place.stop :]])

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradient of every parameter over the processes; where a process did not use it, it counts as 0."""
        if self.count == 1:
            return
        with _all_present():
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)

    def agree(self, value: Any) -> Any:
        """The first process's ``value`` (anything JSON can hold), for all; the others wait as long as it lives.

        Raises:
            ProcessGoneError: it has ended.
        """
        return value if self.first_process is None else self.first_process.say(value)


class _Calling(Ranks):
    def __init__(self, ranks: Ranks, job: str) -> None:
        super().__init__(ranks.rank, ranks.count, ranks.first_process)
        self.job, self.called = job, False

    def begin(self) -> None:
        self.called = True
        self.agree(self.job)


ALONE = Ranks()


@contextmanager
def started_ranks(device: str) -> Iterator[Ranks]:
    """The processes that a launcher started with this one (``RANK``, ``WORLD_SIZE``), joined while the block runs.

    After it the group is gone with its threads: one that outlived it could abort the interpreter at its exit.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu and torch.device(device).index is None:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # what "cuda" means in this process
    store, rank, count = next(iter(rendezvous("env://", timeout=_TIMEOUT)))
    with _all_present():
        store = of_this_start(store, rank, count)
    backend = "nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
    try:
        first_process = FirstProcess(store, rank, count)
        with first_process.alive():
            yield Ranks(rank, count, first_process)
    finally:
        dist.destroy_process_group()


def of_this_start(store: Store, rank: int, count: int) -> PrefixStore:
    """A part of the store that no earlier start of the processes has written to.

    torchrun may keep its store when it starts the processes again (PyTorch 2.13 does with ``--rdzv-backend c10d``).
    Then it still has the addresses and messages of those that died. So each process writes a random name, and under
    this name the first process answers with the name of the part, until all have it.

    Args:
        store: The store that the launcher names.
        rank: Number of this process.
        count: Number of processes.

    Raises:
        ProcessGoneError: A process did not start within ten minutes.
    """
    at = PrefixStore("gnnretrieval-start", store)
    own, deadline = secrets.token_hex(8), time.monotonic() + _TIMEOUT.total_seconds()
    if rank:
        at.set(f"here/{rank}", own)
        start = at.get(f"start/{own}").decode()  # waits
        at.set(f"{start}/{rank}", "joined")
        return PrefixStore(start, at)
    others = range(1, count)
    while not at.check([f"{own}/{other}" for other in others]):
        if time.monotonic() > deadline:
            raise ProcessGoneError("Another process", "did not start within ten minutes")
        for other in others:
            if at.check([f"here/{other}"]):
                at.set(f"start/{at.get(f'here/{other}').decode()}", own)
        time.sleep(_PAUSE)
    return PrefixStore(own, at)


@contextmanager
def _all_present() -> Iterator[None]:
    """Turn what fails in the block because another process is gone into a sentence."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # gloo's own errors are of no other kind
        raise ProcessGoneError("Another process", "has ended, or did not answer for ten minutes") from None
