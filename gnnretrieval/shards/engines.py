"""Who runs the shards of a stage: processes of this machine, or a Ray cluster. An engine is one function here."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field, field_validator

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.platform.extras import extra
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import progress, say
from gnnretrieval.settings import OneOf, Settings
from gnnretrieval.shards.stage import ShardedStage
from gnnretrieval.shards.stored_stage import StoredStage

_KILLS = 3  # times that workers may be killed without one shard getting done in between
_RETRIES = 5  # times that Ray itself runs a shard again whose worker or machine was lost
_LOSSES = 10  # shards that Ray may give up without one getting done in between
_PDEATHSIG = 1  # of Linux's prctl

Finished = Callable[[int], None]


class Sharding(Settings):
    """How many shards a stage has, and who runs them. None of it changes the result.

    Attributes:
        shards: Number of shards.
        engine: ``local``: processes of this machine; ``ray``: tasks of a Ray cluster.
        workers: Most shards that run at the same time; not given: one with ``local``, as many as the cluster has
            processors (or GPUs) with ``ray``.
        address: Address of the Ray cluster, such as ray://head:10001 or auto; not given: RAY_ADDRESS, or a cluster of
            this machine alone that ends with the command.
        storage: URL of an object store, such as s3://bucket/work, that shards are written to. With ``ray``, workers
            also read their inputs there. Not given: all machines see the same file system.
    """

    shards: int = Field(ge=1)
    engine: Annotated[str, OneOf("local", "ray")] = "local"
    workers: int | None = Field(None, ge=1)
    address: str | None = None
    storage: str | None = None

    @field_validator("storage")
    @classmethod
    def _is_url(cls, storage: str | None) -> str | None:
        if storage is not None and not re.match(r"[a-z0-9+.-]+://.", storage):
            raise ValueError("give a URL such as s3://bucket/work")
        return storage


def run_stage(stage: ShardedStage, sharding: Sharding, *, partly: bool = False) -> None:
    """Run the shards of a stage that have no file yet. After an interruption, the same call runs the rest.

    Args:
        stage: The stage.
        sharding: Who runs its shards.
        partly: The stage's other shards run elsewhere. Shards in a storage then stay there, for the call that joins
            all.

    Raises:
        GnnRetrievalError: A shard cannot be computed, its workers are killed again and again, or its storage cannot be
            reached.
    """
    count = len(stage.parts)
    missing = [number for number in range(count) if not stage.path(number).is_file()]
    stored = None if sharding.storage is None else StoredStage(stage, sharding.storage, {})
    if stored is not None:
        stored.begin()
        present = stored.present(missing)
        missing = sorted(set(missing) - present)
        if not partly:
            stored.copy(present)
    sizes = [part.stop - part.start for part in stage.parts]
    done = sum(sizes) - sum(sizes[number] for number in missing)
    if done:
        say(f"{stage.name}: {count - len(missing)} of {count} shards were done before")
    if missing and stored is not None and sharding.engine == "ray":
        stored = stored.with_inputs()
    whole = count - len(missing)
    with progress(stage.name, sum(sizes), stage.unit, done) as meter:

        def finished(number: int) -> None:
            nonlocal whole
            if stored is not None and not partly:
                stored.copy([number])
            whole += 1
            meter.advance(sizes[number], f"{whole} of {count} shards")

        if missing:
            ENGINES[sharding.engine](stored or stage, missing, sharding, finished)
    if stored is not None and not partly:
        stored.delete()


def run_local(stage: ShardedStage, numbers: Sequence[int], sharding: Sharding, finished: Finished) -> None:
    """Run shards in processes of this machine; with one worker, in this process.

    If a worker is killed, its shard and those that were waiting are run by new workers.

    Args:
        stage: The stage.
        numbers: Numbers of the shards.
        sharding: ``workers`` is used.
        finished: Called with the number of each shard when its file is there.

    Raises:
        GnnRetrievalError: As :func:`run_stage`.
    """
    workers = min(sharding.workers or 1, len(numbers))
    if workers == 1:
        for number in numbers:
            stage.run(number)
            finished(number)
        return
    left, kills = set(numbers), 0
    while left:
        before = len(left)
        try:
            with _pool(workers) as pool:
                running = {pool.submit(_run, stage, number): number for number in sorted(left)}
                for future in as_completed(running):
                    _require_none(future.result())
                    left.remove(running[future])
                    finished(running[future])
        except BrokenProcessPool:
            for number in sorted(left):
                if stage.path(number).is_file():
                    left.remove(number)
                    finished(number)
            kills = kills + 1 if len(left) == before else 1
            if kills == _KILLS:
                raise GnnRetrievalError(
                    f"{stage.name}: workers were killed {_KILLS} times in a row, perhaps for want of memory. Give "
                    "fewer --workers or more --shards; what is done is kept."
                ) from None
            say(f"{stage.name}: a worker was killed, its shard begins again")


def run_ray(stage: ShardedStage, numbers: Sequence[int], sharding: Sharding, finished: Finished) -> None:
    """Run shards as tasks of a Ray cluster, whose machines see the same file system under the same paths.

    A task takes one processor, or one GPU if the stage computes on one. Ray runs the task again if its worker or its
    machine is lost. Arguments and errors as :func:`run_local`.
    """
    ray = extra("ray", "ray", "--engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics to its makers
    if not ray.is_initialized():  # until this process ends, so that workers keep their encoder from stage to stage
        try:
            ray.init(address=sharding.address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise GnnRetrievalError(
                f"the Ray cluster {sharding.address or 'of this machine'} cannot be used ({reason}). Start one with "
                "'ray start --head', and give its --address."
            ) from None
    task = ray.remote(_run)
    needs = {"num_cpus": 1, "num_gpus": 1 if stage.device.startswith("cuda") else 0, "max_retries": _RETRIES}
    waiting, running, losses = list(reversed(numbers)), dict[Any, int](), 0
    most = sharding.workers or len(numbers)
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number = waiting.pop()
                name = f"{stage.name} {number + 1}/{len(stage.parts)}"
                running[task.options(name=name, **needs).remote(stage, number)] = number
            for one in ray.wait(list(running))[0]:
                number = running.pop(one)
                try:
                    _require_none(ray.get(one))
                except ray.exceptions.RayError as error:  # tasks go to a lost machine until Ray notices the loss
                    losses += 1
                    reason = str(error).splitlines()[0].rstrip(".")
                    if losses == _LOSSES:
                        raise GnnRetrievalError(
                            f"{stage.name}: Ray lost {_LOSSES} shards in a row ({reason}). Run the command again; what "
                            "is done is kept."
                        ) from None
                    time.sleep(losses)
                    waiting.append(number)
                else:
                    losses = 0
                    finished(number)
    finally:
        for one in running:  # after an error or Ctrl-C
            ray.cancel(one, force=True)


ENGINES: Mapping[str, Callable[[ShardedStage, Sequence[int], Sharding, Finished], None]] = {
    "local": run_local,
    "ray": run_ray,
}


def _run(stage: ShardedStage, number: int) -> str | None:
    """Run one shard in a worker; returns the sentence of its error, as errors with several arguments do not pickle."""
    keep_freed_memory()
    try:
        if not stage.path(number).is_file():
            stage.run(number)
    except GnnRetrievalError as error:
        return str(error)
    return None


def _require_none(error: str | None) -> None:
    if error is not None:
        raise GnnRetrievalError(error)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose workers end with this process, and at once on Ctrl-C or an error."""
    others = set(multiprocessing.active_children())
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(os.getpid(), threads))
    try:
        yield pool
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(parent: int, threads: int) -> None:
    """Prepare a worker: few threads, no answer to Ctrl-C, which its parent obeys, and no life after its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch and tokenizers read them later, at their start
        os.environ[name] = str(threads)
    if (torch := sys.modules.get("torch")) is not None:  # the user's own script has imported it before
        torch.set_num_threads(threads)
