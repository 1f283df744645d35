import asyncio
import threading
import time

import pytest

from gnnretrieval.serve.worker import Busy, TimedOut, Worker


def worker(answer, **changes):
    how = {"batch_size": 4, "wait": 0.0, "max_waiting": 100, "timeout": 30.0}
    return Worker(answer, **(how | changes))


class Held:
    """Answers after :attr:`go` is set, and remembers what came together."""

    def __init__(self):
        self.go, self.began = threading.Event(), threading.Event()
        self.batches = []

    def __call__(self, kind, items):
        self.batches.append((kind, list(items)))
        self.began.set()
        self.go.wait(30)
        return [f"{kind}:{item}" for item in items]


def test_what_came_during_a_batch_is_the_next_one_no_larger_than_it_may_be():
    held = Held()
    sizes = []
    busy = worker(held, observe=sizes.append)

    async def ask():
        first = asyncio.create_task(busy.ask("a", 0))
        await asyncio.to_thread(held.began.wait, 30)
        others = [asyncio.create_task(busy.ask("a", number)) for number in range(1, 7)]
        while len(busy._queue) < 6:
            await asyncio.sleep(0.001)
        held.go.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [f"a:{number}" for number in range(7)]
    assert held.batches == [("a", [0]), ("a", [1, 2, 3, 4]), ("a", [5, 6])]
    assert sizes == [1, 4, 2]
    busy.close()


def test_one_that_finds_the_thread_idle_waits_for_others():
    held = Held()
    held.go.set()
    patient = worker(held, wait=30.0)

    async def ask():
        return await asyncio.gather(*(patient.ask("a", number) for number in range(4)))

    assert asyncio.run(ask()) == ["a:0", "a:1", "a:2", "a:3"]
    assert held.batches == [("a", [0, 1, 2, 3])]
    patient.close()


def test_only_what_asks_for_the_same_is_answered_together():
    held = Held()
    held.go.set()
    patient = worker(held, wait=30.0)

    async def ask():
        return await asyncio.gather(*(patient.ask(kind, number) for number, kind in enumerate("abab")))

    assert asyncio.run(ask()) == ["a:0", "b:1", "a:2", "b:3"]
    assert held.batches == [("a", [0, 2]), ("b", [1, 3])]
    patient.close()


def test_an_item_that_fails_fails_alone():
    def answer(kind, items):
        if "bad" in items:
            raise ValueError("bad")
        return items

    patient = worker(answer, wait=30.0)

    async def ask():
        items = ["one", "bad", "two", "three"]
        return await asyncio.gather(*(patient.ask("a", item) for item in items), return_exceptions=True)

    one, bad, two, three = asyncio.run(ask())
    assert (one, two, three) == ("one", "two", "three")
    assert isinstance(bad, ValueError)
    patient.close()


def test_when_a_batch_fails_late_nothing_is_asked_again_for_those_who_have_left():
    asked = []

    def answer(kind, items):
        asked.append(list(items))
        time.sleep(0.2)
        raise ValueError("the endpoint is down")

    busy = worker(answer, wait=0.05, timeout=0.1)

    async def ask():
        return await asyncio.gather(*(busy.ask("a", number) for number in range(3)), return_exceptions=True)

    assert [type(error) for error in asyncio.run(ask())] == [TimedOut] * 3
    busy.close()
    assert asked == [[0, 1, 2]]


def test_more_than_may_wait_is_refused_at_once():
    held = Held()
    small = worker(held, max_waiting=2)

    async def ask():
        first = asyncio.create_task(small.ask("a", 0))
        await asyncio.to_thread(held.began.wait, 30)
        waiting = [asyncio.create_task(small.ask("a", number)) for number in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await small.ask("a", 3)
        held.go.set()
        return await asyncio.gather(first, *waiting)

    assert asyncio.run(ask()) == ["a:0", "a:1", "a:2"]
    small.close()


def test_what_takes_too_long_is_given_up_and_not_computed_if_it_still_waited():
    held = Held()
    short = worker(held, timeout=0.05)

    async def ask():
        first = asyncio.create_task(short.ask("a", 0))
        await asyncio.to_thread(held.began.wait, 30)
        with pytest.raises(TimedOut):
            await short.ask("a", 1)
        with pytest.raises(TimedOut):
            await first

    asyncio.run(ask())
    held.go.set()
    short.close()
    assert held.batches == [("a", [0])]


def test_closing_answers_what_waits_and_refuses_what_comes_after():
    held = Held()
    closing = worker(held)

    async def ask():
        tasks = [asyncio.create_task(closing.ask("a", number)) for number in range(3)]
        await asyncio.to_thread(held.began.wait, 30)
        stopping = asyncio.create_task(asyncio.to_thread(closing.close))
        while closing.is_alive:
            await asyncio.sleep(0.001)
        with pytest.raises(Busy):
            await closing.ask("a", 9)
        held.go.set()
        await stopping
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask()) == ["a:0", "a:1", "a:2"]
    assert not closing._thread.is_alive()
