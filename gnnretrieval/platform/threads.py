"""The threads that torch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread meanwhile.

    Small operators gain little from more, and lose much where other processes want the processors too. The bytes of a
    result do not depend on the number of threads.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
