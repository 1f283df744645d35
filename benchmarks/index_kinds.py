"""Kinds of index at 100,000 and 1,000,000 vectors of 384 numbers: recall and times, against FAISS called directly.

    .venv/bin/python benchmarks/index_kinds.py --features graphs/docstrings/features

FEATURES are a dual-encoder's features of real texts (``make quickstart`` makes some). There are not a million of them,
so vectors of a similar distribution are made. The real vectors are clustered; a made vector is a cluster's centre, plus
the offset of another real vector from its own centre, plus a little noise, normalised to length 1. So it has the coarse
position of one text and the detail of another. Queries are the features' real questions.

Each kind is built, and searched with the cheapest setting that reaches a recall@10 of 0.95 on half of the queries;
recall is reported on the other half. Exact kinds have no setting; for product quantisation and HNSW the target is the
default, 0.99 or the nearest to it. The direct search reads the same file by ``faiss.read_index``, uses the same setting
and normalises questions by ``faiss.normalize_L2``, as our search normalises them too.

In every round both systems answer the questions one by one, and all together. One by one, their order changes with
every question; together it is FAISS, ours, ours, FAISS, each after one question to warm up. Both read the file again in
every round, in a process that has built nothing. Times are medians of the rounds, and the ratio is the median of the
rounds' ratios. Writes results/index_kinds.json and results/index_kinds.md.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import faiss
import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import TextStore, passage_rows
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.index import build_index
from gnnretrieval.index.faiss_index import Index, open_index
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.progress import progress, say, show_progress
from gnnretrieval.storage.arrays import ArrayWriter, blocks
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
KINDS = {
    100_000: ("Flat", "IVF1024,Flat", "IVF1024,SQ8", "IVF1024,PQ48", "IVF1024,PQ48,RFlat", "SQ8", "HNSW32"),
    1_000_000: ("Flat", "IVF2048,SQfp16", "IVF2048,SQ8", "IVF2048,PQ48", "IVF2048,PQ48,RFlat", "HNSW32"),
}
TARGET = 0.95
_CLUSTERS, _NOISE, _BLOCK = 512, 0.1, 50_000
_ASKED, _FEW = 200, 10  # queries a round; queries a round of slow kinds
_SLOW = 0.01  # seconds a question above which a kind is slow
_COPIED = 256 * 2**20  # bytes of a file up to which it is copied in every round
_K = 10


def made_features(real: Features, count: int, place: Path) -> Features:
    """Features of ``count`` made vectors, with the queries of the real ones."""

    def write(directory: Path) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        vectors = np.asarray(real.passages, dtype=np.float32)
        kmeans = faiss.Kmeans(vectors.shape[1], min(_CLUSTERS, len(vectors) // 8), seed=1, min_points_per_centroid=1)
        kmeans.train(vectors)
        centroids = np.asarray(kmeans.centroids)
        cluster = kmeans.index.search(vectors, 1)[1][:, 0]
        away = vectors - centroids[cluster]
        noise = _NOISE * np.linalg.norm(away, axis=1).mean() / vectors.shape[1] ** 0.5
        shape = (count, vectors.shape[1])
        with (
            ArrayWriter(directory / "passages.npy", shape, np.float16) as writer,
            progress("making vectors", count, "vectors") as meter,
        ):
            for part in blocks(count, _BLOCK):
                size = part.stop - part.start
                drawn = centroids[cluster[rng.integers(0, len(vectors), size)]]
                drawn = drawn + away[rng.integers(0, len(vectors), size)]
                drawn += noise * rng.standard_normal(drawn.shape, dtype=np.float32)
                writer.write(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
                meter.advance(size)
        queries = np.asarray(real.queries)
        with ArrayWriter(directory / "queries.npy", queries.shape, np.float16) as writer:
            writer.write(queries)
        with TextStore(directory / TEXTS, create=True) as texts:
            texts.add_passages(passage_rows(Passage(f"p{row}", "", "") for row in range(count)))
        kept = ("encoder", "similarity", "source", "checkpoint_hash", "dimension")
        return {**{name: real.meta[name] for name in kept}, "num_passages": count, "num_queries": len(queries)} | {
            "made_from": {"dataset": "."}
        }

    config = {"count": count, "clusters": _CLUSTERS, "noise": _NOISE}
    artifact = make_artifact(place, "features", inputs={"features": real.hash}, config=config, write=write)
    return Features(artifact.path, artifact.meta)


def in_own_process(function: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """What ``function`` returns, called in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *given).result()


def read(index: Index) -> Any:
    """The index as FAISS reads it, with the same setting."""
    direct = faiss.read_index(str(index.path / "index.faiss"))
    if search := index.meta["search"]:
        faiss.ParameterSpace().set_index_parameters(direct, search)
    return direct


def timed(place: Path, queries: NDArray[np.float32], rounds: int) -> dict[str, Any]:
    """Milliseconds a question, alone and together, of our search and of FAISS, and the median ratios of the rounds.

    Call it in a fresh process: one that has built an index reads into the memory that it freed, which is faster. Every
    round reads the file again, and copies it first if it is small: the position of an index in memory changes its time
    by a few hundredths, and that of a memory-mapped one depends on where its file was written.
    """
    index = open_index(place)
    direct = read(index)
    questions = np.ascontiguousarray(queries)

    def directly(batch: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        unit = batch.copy()
        faiss.normalize_L2(unit)
        scores, rows = direct.search(unit, _K)
        return scores, rows

    systems: dict[str, Callable[[NDArray[np.float32]], Any]] = {
        "ours": lambda batch: index.search(batch, _K),
        "faiss": directly,
    }
    begun = time.perf_counter()
    directly(questions[:1])
    few = time.perf_counter() - begun > _SLOW  # kinds that go through every vector
    questions = questions[:_FEW] if few else questions
    alone: dict[str, list[float]] = {name: [] for name in systems}
    together: dict[str, list[float]] = {name: [] for name in systems}
    whole = [path for path in place.iterdir() if path.suffix == ".faiss" and path.stat().st_size <= _COPIED]
    for number in range(rounds + 1):
        for path in whole:
            shutil.copyfile(path, path.with_suffix(".copy"))
            path.with_suffix(".copy").replace(path)
        index, direct = open_index(place), read(index)
        single: dict[str, list[float]] = {name: [] for name in systems}
        for row in range(len(questions)):
            for name in sorted(systems, reverse=row % 2 == 1):
                begun = time.perf_counter()
                systems[name](questions[row : row + 1])
                single[name].append(time.perf_counter() - begun)
        several = dict.fromkeys(systems, 0.0)
        for name in [*sorted(systems), *sorted(systems, reverse=True)]:  # FAISS, ours, ours, FAISS
            systems[name](questions[:1])
            begun = time.perf_counter()
            systems[name](questions)
            several[name] += time.perf_counter() - begun
        for name in systems if number else ():
            alone[name].append(1000 * statistics.median(single[name]))
            together[name].append(1000 * several[name] / 2 / len(questions))
    figures: dict[str, Any] = {"rounds": rounds}
    for what, values in (("alone", alone), ("together", together)):
        figures[f"milliseconds_{what}"] = statistics.median(values["ours"])
        figures[f"faiss_milliseconds_{what}"] = statistics.median(values["faiss"])
        ratios = [own / other for own, other in zip(values["ours"], values["faiss"], strict=True)]
        figures[f"ratio_{what}"] = statistics.median(ratios)
    ours, theirs = index.search(questions, _K)[0], directly(questions)[1]
    figures["same_results"] = float((ours == theirs).mean())
    return figures


def measure(source: Features, factory: str, place: Path, rounds: int) -> dict[str, Any]:
    """Build and measure one kind of index over one set of vectors."""
    search = {"target_recall": TARGET} if factory.startswith("IVF") and "PQ" not in factory else {}
    begun = time.monotonic()
    index = build_index(source, place, IndexSettings(factory=factory, **search), overwrite=True)
    seconds = time.monotonic() - begun
    measured = index.meta["measured"]
    queries = np.asarray(source.queries[-_ASKED:], dtype=np.float32)
    row = {
        "vectors": index.meta["num_passages"],
        "kind": factory,
        "search": index.meta["search"],
        "seconds": seconds,
        "bytes": index.meta["bytes"],
        "recall@10": measured["recall@10"],
        "recall@100": measured["recall@100"],
        **in_own_process(timed, place, queries, rounds),
        "git_revision": git_revision(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    say(json.dumps(row))
    return row


def markdown(results: dict[str, Any]) -> str:
    """The table as a page."""
    lines = [
        "# Kinds of index",
        "",
        "Regenerate: `.venv/bin/python benchmarks/index_kinds.py --features graphs/docstrings/features`",
        "",
        "Vectors of 384 numbers, cosine; the cheapest setting that reaches recall@10 of "
        f"{TARGET:g} on half of 400 questions (PQ and HNSW: 0.99, or the nearest to it), recall on the other half. "
        "Building includes the exact search that is measured by. Times: milliseconds a question, asked alone and "
        f"{_ASKED} together ({_FEW} of kinds that go through every vector), {results['processors']} cores; "
        "×: our time over that of FAISS called directly on the same file, medians of rounds in which they take turns.",
        "",
        "| vectors | kind | search | built in | size | recall@10 | recall@100 | alone | × | together | × |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in results["rows"]:
        lines.append(
            f"| {row['vectors']:,} | {row['kind']} | {row['search'] or '–'} | {row['seconds']:.0f} s | "
            f"{row['bytes'] / 2**20:.0f} MiB | {row['recall@10']:.3f} | {row['recall@100']:.3f} | "
            f"{row['milliseconds_alone']:.2f} ms | {row['ratio_alone']:.3f} | "
            f"{row['milliseconds_together']:.2f} ms | {row['ratio_together']:.3f} |"
        )
    peak = max(row["peak_bytes"] for row in results["rows"])
    lines += ["", f"Most memory of the process, its indexes twice: {peak / 2**20:,.0f} MiB."]
    revisions = {row["git_revision"] for row in results["rows"]}
    if len(revisions) > 1:
        lines += [
            "",
            f"Rows are of {len(revisions)} revisions of the code: some were measured again alone (see the JSON).",
        ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--features", type=click.Path(path_type=Path), required=True, help="Features of real texts, 384 wide.")
@click.option("--vectors", type=click.Choice([str(count) for count in KINDS]), multiple=True, help="Only this many.")
@click.option("--kind", "kinds", multiple=True, help="Only this kind.")
@click.option("--rounds", type=click.IntRange(1), default=11, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Where indexes go (default: a temporary directory).")
def main(features: Path, vectors: tuple[str, ...], kinds: tuple[str, ...], rounds: int, work: Path | None) -> None:
    """Build and measure every kind, and write the result files; figures of what is left out are kept."""
    counts = [int(count) for count in vectors] or list(KINDS)
    real = open_features(features)
    with tempfile.TemporaryDirectory(dir=work) as place:
        for count in counts:
            source = made_features(real, count, Path(place) / f"features-{count}")
            for kind in [kind for kind in KINDS[count] if not kinds or kind in kinds]:
                index = Path(place) / "index"
                record(measure(source, kind, index, rounds), real)
                shutil.rmtree(index)
    click.echo((RESULTS / "index_kinds.md").read_text(encoding="utf-8"))


def record(row: dict[str, Any], real: Features) -> None:
    """Put one kind's figures into the result files, in place of its earlier ones."""
    path = RESULTS / "index_kinds.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = [other for other in rows if (other["vectors"], other["kind"]) != (row["vectors"], row["kind"])]
    order = [(count, kind) for count, kinds in KINDS.items() for kind in kinds]
    results = {
        "rows": sorted([*rows, row], key=lambda row: order.index((row["vectors"], row["kind"]))),
        "target_recall": TARGET,
        "made": {"clusters": _CLUSTERS, "noise": _NOISE},
        "features": real.hash,
        "versions": library_versions(),
        "processors": os.cpu_count(),
    }
    write_json(path, results)
    (RESULTS / "index_kinds.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
