"""Writes that survive a power loss: files and directories synced to the disk, and two names exchanged in one step.

The operating system keeps written data in memory for seconds, and may write a name to the disk before the bytes of its
file. So the bytes are synced first, then the directory that names them, and last the name that marks all of it as
whole.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
_NOT_THERE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # not supported by system or file system


def sync_file(path: Path) -> None:
    """Wait until the bytes of a file are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # names the file, as on a full disk
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk; does nothing where it cannot be opened or synced."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # it may be written to, and not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, each with its name on the disk."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync_tree(directory: Path, skip: Path | None = None) -> None:
    """Wait until a directory and everything in it is on the disk, except the directory ``skip`` in it."""
    for place, folders, files in os.walk(directory, topdown=True):
        folders[:] = [name for name in folders if Path(place, name) != skip]
        for name in files:
            sync_file(Path(place, name))
        sync_directory(Path(place))


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system or the file system cannot."""
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_THERE:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # another system, or an old C library
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    renameat2: Callable[..., int] = call
    return renameat2
