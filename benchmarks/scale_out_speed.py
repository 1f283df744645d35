"""Speed of two workers against one, and of merging shards; for benchmarks/scale_out.py."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scale_out_page import STAGES

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.encoding_shards import EncodingShards
from gnnretrieval.encoders.features import open_features
from gnnretrieval.graph.edges.neighbor_shards import NeighborShards
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.platform.threads import one_thread
from gnnretrieval.storage.arrays import ArrayWriter, save_array


def rate(files: list[Path], sizes: dict[str, int], running: int) -> float:
    """Rows a second, from the shards' times after each worker's first: without the start of the workers."""
    by_time = sorted(files, key=lambda file: file.stat().st_mtime_ns)
    first, last = by_time[running - 1], by_time[-1]
    rows = sum(sizes[file.name] for file in by_time[running:])
    return rows / ((last.stat().st_mtime_ns - first.stat().st_mtime_ns) / 1e9)


@contextmanager
def one_processor() -> Iterator[None]:
    """Compute with one thread, on one processor, as one of two workers does."""
    keep_freed_memory()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        with one_thread():
            yield
    finally:
        os.sched_setaffinity(0, processors)


def speed(data: Path, work: Path, repeats: int) -> dict[str, Any]:
    """Rates of one and of two workers of one thread each, in turns: every repeat's."""
    from gnnretrieval.encoders.opening import fingerprint_of
    from gnnretrieval.encoders.settings import EncoderSettings
    from gnnretrieval.shards import ShardedStage, Sharding, run_stage

    settings = EncoderSettings(max_tokens=64, window=64)
    dataset = Dataset.open(data)
    total = min(len(dataset.passage_ids), 5120)
    features = synthetic_features(data, work)
    rates: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in STAGES}
    for repeat in range(repeats):
        for count in (1, 2):
            place = work / f"speed-{repeat}-{count}"
            shutil.rmtree(place, ignore_errors=True)
            weights = fingerprint_of(settings)[0]["passage"]
            encoding = EncodingShards(
                dataset.place, settings.model_dump_json(), weights, "passage", total, 80, place / "encoding", "cpu"
            )
            search = NeighborShards(
                dataset.place,
                features.path,
                features.hash,
                "train",
                10,
                len(dataset.passage_ids),
                40,
                place / "top-k",
                "cpu",
            )
            stages: tuple[ShardedStage, ...] = (encoding, search)
            for name, stage in zip(STAGES, stages, strict=True):
                with one_processor() if count == 1 else nullcontext():  # two workers have a thread each anyway
                    run_stage(stage, Sharding(shards=len(stage.parts), workers=count))
                parts = range(len(stage.parts))
                sizes = {
                    stage.path(number).name: stage.parts[number].stop - stage.parts[number].start for number in parts
                }
                rates[name][count].append(rate([stage.path(number) for number in parts], sizes, count))
            shutil.rmtree(place)
    return {name: {str(count): repeated for count, repeated in by.items()} for name, by in rates.items()}


def synthetic_features(data: Path, work: Path) -> Any:
    """Features of random vectors, wide enough that a search takes a while."""
    from gnnretrieval.encoders.features import Features

    dataset, rng = Dataset.open(data), np.random.default_rng(0)
    sides = [rng.standard_normal((len(ids), 4096), np.float32) for ids in (dataset.passage_ids, dataset.query_ids)]
    features = Features.from_vectors(dataset, sides[0], sides[1], work / "synthetic", overwrite=True)
    return open_features(features.path)


def merging(work: Path, passages: int, dimension: int, shards: int) -> dict[str, Any]:
    """Seconds and peak memory of joining shards of random vectors, and of merging searches of them."""
    place = work / "merging"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    nowhere: Any = None
    stage = EncodingShards(nowhere, '{"window": 1024}', "", "passage", passages, shards, place, "cpu")
    block: NDArray[np.float16] = (
        np.random.default_rng(0).standard_normal((65536, dimension), np.float32).astype(np.float16)
    )
    for number, part in enumerate(stage.parts):
        rows = part.stop - part.start
        with ArrayWriter(stage.path(number), (rows, dimension), np.float16) as writer:
            for start in range(0, rows, len(block)):
                writer.write(block[: rows - start])
    queries, k = 10_000, 25
    search = NeighborShards(nowhere, place, "", "train", k, passages, shards, place, "cpu")
    for number, part in enumerate(search.parts):
        save_array(
            search.path(number), np.sort(np.random.default_rng(number).integers(part.start, part.stop, (queries, k)))
        )
        scores = -np.sort(-np.random.default_rng(number).random((queries, k), np.float32))
        save_array(search._scores(number), scores)
    code = (
        "import sys, time, pickle, resource; stage, search = pickle.load(sys.stdin.buffer); begun = time.monotonic();"
        f"stage.merge(stage.directory / 'merged.npy', {dimension}); joined = time.monotonic(); search.merge();"
        "print(joined - begun, time.monotonic() - joined, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((stage, search)), capture_output=True, check=True
    )
    seconds, seconds_search, peak = map(float, done.stdout.split())
    shutil.rmtree(place)
    return {
        "passages": passages,
        "dimension": dimension,
        "shards": shards,
        "queries": queries,
        "k": k,
        "vectors_s": seconds,
        "searches_s": seconds_search,
        "peak_mib": peak / 1024,
    }
