"""A thread that answers waiting requests in batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple


class Busy(Exception):
    """Raised when too many requests wait already."""


class TimedOut(Exception):
    """Raised when the answer to a request takes too long."""


class _Waiting(NamedTuple):
    kind: Hashable
    item: Any
    future: Future[Any]
    until: float  # time.monotonic() at which it is given up


class Worker:
    """Answers requests in a separate thread.

    Requests that arrive while a batch is answered make up the next one, so batches grow with the load. A batch that is
    not full waits ``wait`` seconds for more requests.

    Args:
        answer: ``answer(kind, items)`` returns an answer for each of the items, which are of one kind.
        batch_size: Maximum number of items in a batch.
        wait: Seconds that a batch waits for more items.
        max_waiting: Maximum number of waiting items.
        timeout: Seconds after which an item is given up.
        observe: Called with the number of items of each kind in a batch.
    """

    def __init__(
        self,
        answer: Callable[[Any, Sequence[Any]], Sequence[Any]],
        *,
        batch_size: int,
        wait: float,
        max_waiting: int,
        timeout: float,
        observe: Callable[[int], object] = lambda size: None,
    ) -> None:
        self._answer, self._observe = answer, observe
        self._batch_size, self._wait, self._timeout = batch_size, wait, timeout
        self._max_waiting = max_waiting
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="gnnretrieval-worker", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive() and not self._closed

    async def ask(self, kind: Hashable, item: Any) -> Any:
        """The answer for one item; an exception of ``answer`` is raised here.

        Raises:
            Busy: Too many items wait, or the worker is closed.
            TimedOut: The answer took longer than ``timeout``.
        """
        waiting = _Waiting(kind, item, Future(), time.monotonic() + self._timeout)
        with self._changed:
            if self._closed or len(self._queue) >= self._max_waiting:
                raise Busy
            self._queue.append(waiting)
            self._changed.notify()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(waiting.future), self._timeout)
        except TimeoutError:
            raise TimedOut from None

    def close(self, seconds: float | None = None) -> None:
        """Answer the waiting items, and end the thread.

        Args:
            seconds: Maximum time to wait for it; then the thread is left to end with the process. None: no limit.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while batch := self._next():
            self._answer_all(batch)
            del batch  # so that the thread keeps nothing of it while it waits

    def _answer_all(self, batch: Sequence[_Waiting]) -> None:
        kinds: dict[Hashable, list[_Waiting]] = {}
        for waiting in batch:
            if waiting.future.set_running_or_notify_cancel():  # False: the item was given up while it waited
                kinds.setdefault(waiting.kind, []).append(waiting)
        for kind, together in kinds.items():
            self._observe(len(together))
            self._settle(kind, together)

    def _next(self) -> list[_Waiting]:
        """The next batch; an empty one when the worker is closed and nothing waits."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            end = time.monotonic() + self._wait
            while len(self._queue) < self._batch_size and not self._closed:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return [self._queue.popleft() for _ in range(min(self._batch_size, len(self._queue)))]

    def _settle(self, kind: Hashable, together: list[_Waiting]) -> None:
        try:
            answers = self._answer(kind, [waiting.item for waiting in together])
        except Exception as error:
            if len(together) == 1:
                together[0].future.set_exception(error)
                return
            for waiting in together:  # one bad item must not fail the others
                if time.monotonic() < waiting.until:
                    self._settle(kind, [waiting])
                else:  # nobody waits for it any more
                    waiting.future.set_exception(error)
            return
        for waiting, answer in zip(together, answers, strict=True):
            waiting.future.set_result(answer)
