"""What is served, one version at a time: loaded beside the one before, and put in its place between two requests."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.serve.lookups import Lookups
from gnnretrieval.serve.worker import Busy, Worker

_log = logging.getLogger(__name__)
_TRIES, _PAUSE = 3, 0.3  # a directory is gone for a moment while another takes its place
_LONGEST = 3600.0  # seconds that loading may take
_MANY = 3  # reloads that may wait
_RETRY = 30.0  # seconds after which a failed reload is tried again by who watches

Load = Callable[["Served"], Retriever]
Warm = Callable[["Served"], Any]


class Served:
    """One version of what is served. Its files are closed when its last request is done.

    Args:
        retriever: What answers.
        is_own: Nobody else uses it: it is closed.

    Attributes:
        version: The beginning of the index's hash, which every answer names.
        lookups: What looks things up in its graph and texts.
    """

    def __init__(self, retriever: Retriever, *, is_own: bool = False) -> None:
        self.retriever, self.lookups = retriever, Lookups(retriever)
        self.version = self.lookups.version
        if is_own:
            weakref.finalize(self, retriever.close).atexit = False


class Reload(NamedTuple):
    """How a reload ended.

    Attributes:
        version: What is served now.
        before: What was served before.
        failed: Whether the new version could not be loaded, so that the one before is served still.
        when: When it ended.
    """

    version: str
    before: str
    failed: bool
    when: datetime


class Versions:
    """The version that is served now, and its replacement.

    Args:
        first: What is served at first.
        load: Opens what lies at the index's place now, given what is served; None: it is never replaced.
        warm_up: Asks a new version what its first requests would wait for; awaited.
        observe: Called with how each reload ended.

    Attributes:
        current: What is served now.
        last: How the last reload ended; None: there was none.
    """

    def __init__(
        self,
        first: Served,
        load: Load | None,
        warm_up: Warm,
        observe: Callable[[Reload], object] = lambda ended: None,
    ) -> None:
        self.current = first
        self.last: Reload | None = None
        self._load, self._warm_up, self._observe = load, warm_up, observe
        self._loader = Worker(
            lambda job, items: [job(item) for item in items],
            batch_size=1,
            wait=0,
            max_waiting=_MANY,
            timeout=_LONGEST,
        )
        self._one_at_a_time, self._waiting = asyncio.Lock(), 0

    @property
    def can_reload(self) -> bool:
        """Whether another version can take the place of this one."""
        return self._load is not None

    async def reload(self) -> Reload:
        """Load what lies at the index's place now, and serve it from the next request on.

        Raises:
            Busy: several reloads wait already.
        """
        if self._waiting >= _MANY:
            raise Busy
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                self.last = await self._replace(self.current)
        finally:
            self._waiting -= 1
        self._observe(self.last)
        return self.last

    async def _replace(self, before: Served) -> Reload:
        failed = False
        try:
            opened = Served(await self._loader.ask(self._load, before), is_own=True)
            await self._warm_up(opened)
            self.current = opened
        except Exception as error:  # whatever is wrong with the new version, the one before is there
            failed = True
            why = str(error) if isinstance(error, GnnRetrievalError | OSError) else repr(error)
            _log.error("The index was not loaded again, and version %s is served still: %s", before.version, why)
        return Reload(self.current.version, before.version, failed, datetime.now(UTC))

    async def watch(self, seconds: float) -> None:
        """Reload when the index's ``meta.json`` changes, looking every so many seconds; never ends."""
        meta = self.current.retriever.index.path / "meta.json"
        seen, gone = _signature(meta), 0
        while True:
            await asyncio.sleep(seconds)
            found = _signature(meta)
            gone = gone + 1 if found is None else 0
            if gone == 1:  # for a moment, while another takes its place
                continue
            last = self.last
            is_due = last is not None and last.failed and (datetime.now(UTC) - last.when).total_seconds() >= _RETRY
            if found != seen or is_due:
                seen = found
                await self.reload()

    def close(self, seconds: float | None = None) -> None:
        """End the thread that loads, as :meth:`gnnretrieval.serve.worker.Worker.close`."""
        self._loader.close(seconds)


def open_version(open_: Callable[[], Retriever], in_memory: int, *, is_patient: bool = False) -> Retriever:
    """A retriever with every file open that its answers read, all of one version.

    An artifact that is replaced while it is being opened is opened again.

    Args:
        open_: Opens it.
        in_memory: As :meth:`gnnretrieval.index.opened.OpenedIndex.keep_open`.
        is_patient: Try again where it cannot be opened: a directory is gone for a moment while another takes its place.

    Raises:
        GnnRetrievalError: it cannot be opened, or changes all the time.
    """
    for number in range(_TRIES):
        try:
            opened = open_()
            opened.keep_open(in_memory)
            if opened.is_current():
                return opened
        except (GnnRetrievalError, OSError):
            if not is_patient or number == _TRIES - 1:
                raise
        time.sleep(_PAUSE)
    raise GnnRetrievalError(f"{opened.index.path}: it changes while it is opened. Try again when it does not.")


def _signature(meta: Path) -> tuple[int, int, int] | None:
    try:
        found = meta.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
