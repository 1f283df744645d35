"""What makes a server reload by itself: SIGHUP, and a new index at its place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gnnretrieval.serve.served import Versions
from gnnretrieval.serve.worker import Busy


@asynccontextmanager
async def reloading(versions: Versions, watch: float | None) -> AsyncIterator[None]:
    """Inside, SIGHUP reloads ``versions``, and so does a new index where ``watch`` seconds are given.

    Signals come to the main thread alone: a server in another thread does not listen for them.
    """
    if not versions.can_reload:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    on_terminal = _has_terminal()

    def hung_up() -> None:
        if on_terminal and not _has_terminal():  # it was closed: nobody can stop the server from there any more
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


async def _reload(versions: Versions) -> None:
    with suppress(Busy):  # reloads that wait already will see what is there now
        await versions.reload()


def _has_terminal() -> bool:
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else -1)
    except (OSError, ValueError):
        return False
    return True
