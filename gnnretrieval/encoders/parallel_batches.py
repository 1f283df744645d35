"""Batches on all cores: each batch on one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_WORK = Lock()


def map_batches(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``function`` of every item, in order, as many at a time as torch has threads, each computed by one thread.

    Threads that share every operator wait for one another at the end of each; threads with a batch of their own do not.
    A single item is computed by all threads. Meanwhile torch's number of threads, which is the process's, is 1.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or not _AT_WORK.acquire(blocking=False):
        yield from map(function, items)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(threads)
        _AT_WORK.release()
