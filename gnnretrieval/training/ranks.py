"""The processes of one training run: started by ``torchrun`` or ``accelerate launch``, or just this one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # its functions keep, as a default, the group that stands when it is imported
from torch import Tensor


class Ranks:
    """Cross-batch negatives need two sums over the processes: of vectors, each made by one, and of gradients.

    Attributes:
        rank: This process's number.
        count: How many there are.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    called = False  # whether the others were called to the job

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def calling(self, job: str) -> Ranks:
        """These processes, of which the first one calls the others to ``job`` when it begins it."""
        return _Calling(self, job) if self.first and self.count > 1 else self

    def begin(self) -> None:
        """Called by the first process as it begins what all do together."""

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum of everyone's ``tensor``, in its place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Give every parameter the sum of its gradients; one that a process did not use has none there."""
        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def agree(self, value: Any) -> Any:
        """The first process's ``value`` (anything JSON can hold), for all."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


class _Calling(Ranks):
    def __init__(self, ranks: Ranks, job: str) -> None:
        super().__init__(ranks.rank, ranks.count)
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
    # The first process mines and measures while the others wait, which takes hours on large data.
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(days=7))
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
