"""A synthetic retrieval set of MS MARCO's shape: seeded vectors of passages and queries around common topics.

At scale 1 it has MS MARCO's 8,841,823 passages and 502,939 training queries. Each passage belongs to one of many
topics; a query is a noisy copy of its labelled passage. Texts have only a few words, since the set serves to measure
the store, not an encoder.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import ArrayWriter, blocks

PASSAGES, QUERIES = 8_841_823, 502_939
PLANTED = 25  # neighbours of a query that are known without a search
_BLOCK = 65536


def make_synthetic_set(
    directory: Path, scale: float, dimension: int, seed: int = 0, late: float = 0.0
) -> tuple[int, int]:
    """Write a dataset (BEIR layout) with its vectors; returns the numbers of passages and queries.

    Args:
        directory: Receives the dataset ``whole/``, ``passages.npy``, ``queries.npy`` and ``planted.npy`` (neighbours).
            With ``late``, also the dataset ``early/`` without the last queries, ``early-queries.npy``, and the last
            queries as ``late-queries.jsonl``, ``late-qrels.tsv`` and ``late-queries.npy``.
        scale: Share of MS MARCO's size; 1 is MS MARCO.
        dimension: Width of the vectors.
        seed: Seed of every draw.
        late: Share of the queries that are to be added later.
    """
    m, n = round(scale * PASSAGES), round(scale * QUERIES)
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(max(10, m // 200), dimension)).astype(np.float32)
    topic_of = rng.integers(0, len(topics), m)
    labelled = np.sort(rng.choice(m, n, replace=False))  # the labelled passage of each query, in order
    (directory / "whole" / "qrels").mkdir(parents=True, exist_ok=True)
    queries = np.empty((n, dimension), dtype=np.float16)
    with (
        ArrayWriter(directory / "passages.npy", (m, dimension), np.float16) as writer,
        (directory / "whole" / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
        progress("making passages", m, "passages") as meter,
    ):
        for part in blocks(m, _BLOCK):
            noise = rng.standard_normal((part.stop - part.start, dimension), dtype=np.float32)
            vectors = topics[topic_of[part]] + noise
            writer.write(vectors)
            first, last = np.searchsorted(labelled, (part.start, part.stop))
            near = vectors[labelled[first:last] - part.start]
            queries[first:last] = near + 0.7 * rng.standard_normal(near.shape, dtype=np.float32)
            corpus.writelines(
                f'{{"_id": "p{row}", "title": "", "text": "passage {row} of topic {topic_of[row]}"}}\n'
                for row in range(part.start, part.stop)
            )
            meter.advance(part.stop - part.start)
    order = rng.permutation(n)
    lines = [json.dumps({"_id": f"q{row}", "text": f"what about {labelled[row]}"}) + "\n" for row in order]
    judged = [f"q{row}\tp{labelled[row]}\t1\n" for row in order]
    _write_queries(directory / "whole", lines, judged)
    np.save(directory / "queries.npy", queries[order])
    np.save(directory / "planted.npy", _planted(topic_of, labelled[order], rng))
    if late:
        early = n - round(late * n)
        (directory / "early" / "qrels").mkdir(parents=True, exist_ok=True)
        link = directory / "early" / "corpus.jsonl"
        link.unlink(missing_ok=True)
        link.hardlink_to(directory / "whole" / "corpus.jsonl")
        _write_queries(directory / "early", lines[:early], judged[:early])
        np.save(directory / "early-queries.npy", queries[order[:early]])
        (directory / "late-queries.jsonl").write_text("".join(lines[early:]), encoding="utf-8")
        (directory / "late-qrels.tsv").write_text("".join(judged[early:]), encoding="utf-8")
        np.save(directory / "late-queries.npy", queries[order[early:]])
    return m, n


def _planted(topic_of: np.ndarray, labelled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each query its labelled passage, then random others of its topic ``(n, 25)`` uint32."""
    by_topic = np.argsort(topic_of, kind="stable")
    starts = np.searchsorted(topic_of[by_topic], np.arange(topic_of.max() + 2))
    planted = np.empty((len(labelled), PLANTED), dtype=np.uint32)
    for row, passage in enumerate(labelled.tolist()):
        topic = topic_of[passage]
        others = by_topic[starts[topic] : starts[topic + 1]]
        others = others[others != passage]
        planted[row] = [passage, *rng.choice(others, PLANTED - 1, replace=len(others) < PLANTED - 1)]
    return planted


def _write_queries(directory: Path, lines: list[str], judged: list[str]) -> None:
    (directory / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    (directory / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), encoding="utf-8")
