"""The memory that this process may use, and what happens to memory it frees."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from pathlib import Path

from gnnretrieval.errors import GnnRetrievalError

_LIMITS_OF_GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),  # of a container: cgroup version 2, then version 1
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)


def keep_freed_memory() -> None:
    """Let glibc's allocator keep the memory that tensors free, instead of returning it after every operation.

    Otherwise tensors of some megabytes are mapped, cleared page by page and unmapped for each layer of each batch.
    That costs much CPU time, especially on a virtual machine. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_TOP_PAD, 64 * 2**20)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, after work that needed much more memory than the work that follows."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def memory_limit() -> int:
    """Bytes that this process may use: the machine's memory, or the limit of a container or ``ulimit -v`` below it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _LIMITS_OF_GROUPS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(file.read_text(encoding="ascii")))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if soft == resource.RLIM_INFINITY else [*limits, soft])


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse work that cannot fit into memory, before it starts.

    Args:
        needed: Bytes of memory.
        what: What needs them, for the error, such as ``layer = linear over work/graph``.
        remedy: What to do about it, as a sentence.

    Raises:
        GnnRetrievalError: ``needed`` is above :func:`memory_limit`.
    """
    limit = memory_limit()
    if needed > limit:
        raise GnnRetrievalError(
            f"{what} needs about {_gibibytes(needed)} of memory, and there are {_gibibytes(limit)}. {remedy}"
        )


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:,.{0 if count >= 10 * 2**30 else 1}f} GiB"
