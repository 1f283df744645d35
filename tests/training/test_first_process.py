"""The others wait for the first process as long as it lives, and no longer."""

import multiprocessing
import os
import socket
import time
from threading import Event, Thread

import pytest
import torch
import torch.distributed as dist

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.first_process import PATIENCE_VARIABLE, FirstProcess, ProcessGoneError
from gnnretrieval.training.ranks import started_ranks


@pytest.fixture
def pair(monkeypatch):
    """The first process and another, which is patient for a third of a second."""
    monkeypatch.setenv(PATIENCE_VARIABLE, "0.3")
    store = dist.HashStore()
    return FirstProcess(store, 0, 2), FirstProcess(store, 1, 2)


def in_thread(call):
    thread = Thread(target=call)
    thread.start()
    return thread


def test_what_it_says_arrives_in_order_however_long_it_works_before(pair):
    first, other = pair
    arrived = []

    def others():
        with other.alive():
            arrived.extend(other.say(None) for _ in range(3))

    thread = in_thread(others)
    with first.alive():
        for value in ({"dev": 0.5}, None, [1, "two"]):
            time.sleep(0.6)  # twice the others' patience
            assert first.say(value) == value
    thread.join(5)
    assert arrived == [{"dev": 0.5}, None, [1, "two"]]


def test_one_that_ends_before_it_says_anything_is_not_waited_for(pair):
    first, other = pair
    with pytest.raises(ValueError, match="bad input"), first.alive():
        raise ValueError("bad input")
    begun = time.monotonic()
    with pytest.raises(ProcessGoneError, match=r"The first process of this training run has ended\. Its own message"):
        other.say(None)
    assert time.monotonic() - begun < 0.2


def test_one_that_hangs_is_given_up_when_it_shows_no_life(pair, monkeypatch):
    first, other = pair
    hung, freed = Event(), Event()
    monkeypatch.setattr(FirstProcess, "_beat", lambda self, ended: (self._store.set("alive", "0"), hung.set()))

    def work():
        with first.alive():
            freed.wait(5)

    thread = in_thread(work)
    hung.wait(5)
    with pytest.raises(ProcessGoneError, match=r"has shown no life for 0 seconds"):
        other.say(None)
    freed.set()
    thread.join(5)


def work_as(rank, port, together, place):
    """One of two processes: the first works alone, or begins what takes both; what ends it is written down."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", RANK=str(rank))
    try:
        with started_ranks("cpu") as ranks:
            (place / f"{rank}.joined").touch()
            if together:
                time.sleep(0.5 if ranks.first else 60)
                ranks.sum_(torch.ones(3))
            else:
                time.sleep(60 if ranks.first else 0)
                ranks.agree(None)
    except GnnRetrievalError as error:
        (place / f"{rank}.said").write_text(str(error), encoding="utf-8")


@pytest.mark.parametrize(
    ("together", "dies", "message"),
    [
        (False, 0, "The first process of this training run cannot be reached any more"),
        (True, 1, "Another process of this training run has ended, or did not answer for ten minutes"),
    ],
)
def test_when_one_process_is_killed_the_other_ends_with_a_sentence(tmp_path, together, dies, message):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=work_as, args=(rank, port, together, tmp_path)) for rank in (0, 1)]
    try:
        for process in processes:
            process.start()
        deadline = time.monotonic() + 30
        while len([*tmp_path.glob("*.joined")]) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        processes[dies].kill()
        processes[1 - dies].join(30)
    finally:
        for process in processes:
            process.kill()
            process.join()
    said = (tmp_path / f"{1 - dies}.said").read_text(encoding="utf-8")
    assert said == f"{message}. Its own message says why. Run the same command again to go on."
