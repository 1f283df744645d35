"""The served version of the index; a new one is loaded beside it and replaces it between two requests."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.serve.lookups import Lookups
from gnnretrieval.serve.worker import Busy, Worker
from gnnretrieval.storage.artifacts import signature
from gnnretrieval.storage.places import META

_log = logging.getLogger(__name__)
_TRIES, _PAUSE = 3, 0.3  # a directory is gone for a moment while it is replaced
_LONGEST = 3600.0  # maximum seconds that loading may take
_MANY = 3  # maximum number of reloads that run or wait
_RETRY = 30.0  # seconds after which a watching server tries a failed reload again

Load = Callable[["Served"], Retriever]
Warm = Callable[["Served"], Any]


class Served:
    """One version of the index.

    Args:
        retriever: The retriever of this version.
        is_own: Whether nothing else uses the retriever, so that it is closed after this version's last request.

    Attributes:
        version: The beginning of the index's hash, which every answer names.
        lookups: Lookups in its graph and texts.
    """

    def __init__(self, retriever: Retriever, *, is_own: bool = False) -> None:
        self.retriever, self.lookups = retriever, Lookups(retriever)
        self.version = self.lookups.version
        if is_own:
            weakref.finalize(self, retriever.close).atexit = False


class Reload(NamedTuple):
    """How a reload ended.

    Attributes:
        version: The version that is served now.
        before: The version that was served before; the same if the reload failed.
        failed: Whether the new version could not be loaded.
        when: When the reload ended, in UTC.
    """

    version: str
    before: str
    failed: bool
    when: datetime


class CurrentVersion:
    """The version that is served now, and its replacement.

    Args:
        first: The version that is served at first.
        load: Opens the index's current version, given the one that is served; None: no reloads.
        warm_up: Loads what a new version's first requests would wait for; awaited before it is served.
        observe: Called with how each reload ended.

    Attributes:
        current: The version that is served now.
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
        """Whether another version can replace this one."""
        return self._load is not None

    async def reload(self) -> Reload:
        """Load the index's current version, and serve it from the next request on.

        Returns:
            How the reload ended. If loading failed, the version before is still served.

        Raises:
            Busy: Three reloads already run or wait.
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
        except Exception as error:  # whatever is wrong with the new version, the one before can serve
            failed = True
            why = str(error) if isinstance(error, GnnRetrievalError | OSError) else repr(error)
            _log.error("The index was not loaded again, and version %s is served still: %s", before.version, why)
        return Reload(self.current.version, before.version, failed, datetime.now(UTC))

    async def watch(self, seconds: float) -> None:
        """Reload when the index's ``meta.json`` changes, checking it every ``seconds``; never returns.

        A failed reload is tried again after 30 seconds.
        """
        meta, gone = self.current.retriever.place / META, 0
        seen = signature(meta)
        if not self.current.retriever.is_newest():
            seen = None
        while True:
            await asyncio.sleep(seconds)
            now = signature(meta)
            gone = gone + 1 if now is None else 0
            if gone == 1:  # perhaps only for a moment, while it is replaced
                continue
            last = self.last
            is_due = last is not None and last.failed and (datetime.now(UTC) - last.when).total_seconds() >= _RETRY
            if now != seen or is_due:
                with suppress(Busy):  # the reloads that wait may be of an older version
                    await self.reload()
                    seen = now

    def close(self, seconds: float | None = None) -> None:
        """End the thread that loads; see :meth:`gnnretrieval.serve.worker.Worker.close`."""
        self._loader.close(seconds)


def open_version(open_: Callable[[], Retriever], in_memory: int, *, is_patient: bool = False) -> Retriever:
    """A retriever with all files open that its answers read, all of the same version.

    An index that is replaced while it is being opened is opened again.

    Args:
        open_: Opens the retriever.
        in_memory: As in :meth:`gnnretrieval.index.opened.OpenedIndex.keep_open`.
        is_patient: Whether to try again if it cannot be opened: a directory is gone for a moment while it is replaced.

    Raises:
        GnnRetrievalError: It cannot be opened, or changed during every attempt.
        OSError: One of its files cannot be opened.
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
