"""Batches in parallel, each on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_WORK = Lock()


def map_batches(
    function: Callable[[Item], Result], items: Sequence[Item], stop: Event | None = None
) -> Iterator[Result]:
    """``function`` of each item, in order, with one item per thread and as many threads as torch has.

    This is faster than one item on all threads, which wait for one another after every operator. A single item, or a
    call during another one, uses torch's threads as usual. Until the last item, torch's number of threads is 1 in the
    whole process.

    Args:
        function: What is done; for long work it looks at ``stop``.
        items: What it is done to.
        stop: Set after the last item, and on an error or Ctrl-C, which otherwise waits for the items at work.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or not _AT_WORK.acquire(blocking=False):
        yield from map(function, items)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                yield from pool.map(function, items)
            finally:
                if stop is not None:
                    stop.set()
    finally:
        torch.set_num_threads(threads)
        _AT_WORK.release()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread meanwhile.

    Small operators gain little from more, and lose much where other processes want the processors too. A sum has the
    same bytes on any machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
