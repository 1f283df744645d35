"""Batches in parallel, each on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TypeVar

import torch

from gnnretrieval.platform.threads import one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_WORK = Lock()


def map_batches(
    function: Callable[[Item], Result], items: Sequence[Item], stop: Event | None = None
) -> Iterator[Result]:
    """``function`` of each item, in order, with one item on each of torch's threads.

    This is faster than one item on all threads, which wait for one another after every operator. A single item, or a
    call during another one, uses torch's threads as usual. Until the last item, torch's number of threads is 1 in the
    whole process.

    Args:
        function: What is done; for long work it looks at ``stop``.
        items: What it is done to.
        stop: Set when parallel work ends, also by an error or Ctrl-C, which otherwise wait for running items.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or not _AT_WORK.acquire(blocking=False):
        yield from map(function, items)
        return
    try:
        with one_thread(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                yield from pool.map(function, items)
            finally:
                if stop is not None:
                    stop.set()
    finally:
        _AT_WORK.release()
