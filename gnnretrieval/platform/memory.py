"""Keep freed memory in the process."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)


def keep_freed_memory() -> None:
    """Let glibc's allocator keep what tensors free, instead of returning it to the system after every operation.

    Tensors of some megabytes are otherwise mapped, cleared page by page and unmapped for each layer of each batch,
    which costs much of a CPU's time, on a virtual machine above all. Does nothing on another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_TOP_PAD, 64 * 2**20)


def give_back_freed_memory() -> None:
    """Return what is free to the system, after work that needed much more memory than what follows."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
