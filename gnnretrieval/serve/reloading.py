"""Triggers of a reload: SIGHUP, and a new index in the place of the old one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gnnretrieval.serve.served import CurrentVersion
from gnnretrieval.serve.worker import Busy


@asynccontextmanager
async def reloading(versions: CurrentVersion, watch: float | None) -> AsyncIterator[None]:
    """While this context is open, SIGHUP reloads ``versions``, and so does a new index if ``watch`` is given.

    A SIGHUP that comes from closing the server's terminal stops the server. Only the main thread receives signals, so
    a server in another thread does not handle SIGHUP.

    Args:
        versions: The versions to reload; does nothing if they cannot be reloaded.
        watch: Seconds between two checks for a new index; None: no checks.
    """
    if not versions.can_reload:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    on_terminal = _has_terminal()

    def hung_up() -> None:
        if on_terminal and not _has_terminal():  # closed: nobody can stop the server from there any more
            signal.raise_signal(signal.SIGTERM)
            return
        task = loop.create_task(_reload(versions))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listens = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGHUP")
    if listens:
        loop.add_signal_handler(signal.SIGHUP, hung_up)
    if watch is not None:
        tasks.add(loop.create_task(versions.watch(watch)))
    try:
        yield
    finally:
        if listens:
            loop.remove_signal_handler(signal.SIGHUP)
        for task in list(tasks):
            task.cancel()


async def _reload(versions: CurrentVersion) -> None:
    with suppress(Busy):  # reloads that already wait will load the same version
        await versions.reload()


def _has_terminal() -> bool:
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else -1)
    except (OSError, ValueError):
        return False
    return True
