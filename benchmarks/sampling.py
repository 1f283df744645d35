"""Samples of a dataset in the BEIR layout: some training questions, the same for every system."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np


def sample_dataset(
    source: Path,
    out: Path,
    *,
    questions: int | None,
    dev: int | None,
    labelled: float = 1.0,
    domains: Collection[str] = (),
    qrels: str = "qrels",
    seed: int = 0,
) -> Path:
    """Write a sample of the dataset at ``source`` to ``out``.

    Args:
        source: Dataset directory.
        out: Where the sample goes.
        questions: Number of training questions to keep; None: all.
        dev: Number of dev questions to keep; None: all. Test is kept whole.
        labelled: Share of these training questions that keep their labels; of the others only the texts are kept.
        domains: Values of ``metadata.domain`` to keep, of passages and questions; empty: all.
        qrels: Folder of the judgements.
        seed: Seed of both samples.
    """
    queries: dict[str, Any] = {}
    for line in _lines(source / "queries.jsonl"):
        record = json.loads(line)
        queries[record["_id"]] = record
    corpus = _lines(source / "corpus.jsonl")
    if domains:
        corpus = [line for line in corpus if json.loads(line)["metadata"]["domain"] in domains]
        queries = {id_: record for id_, record in queries.items() if record["metadata"]["domain"] in domains}
    rng = np.random.default_rng(seed)
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    (out / "corpus.jsonl").write_text("".join(f"{line}\n" for line in corpus), encoding="utf-8")
    kept: dict[str, None] = {}
    for split, most in (("train", questions), ("dev", dev), ("test", None)):
        of_query: dict[str, list[str]] = {}
        for line in _lines(source / qrels / f"{split}.tsv")[1:]:
            if (query := line.split("\t")[0]) in queries:
                of_query.setdefault(query, []).append(line)
        names = sorted(of_query)
        chosen = [names[row] for row in rng.permutation(len(names))[: len(names) if most is None else most].tolist()]
        kept.update(dict.fromkeys(chosen))
        with_labels = chosen[: round(labelled * len(chosen))] if split == "train" else chosen
        lines = [line for query in with_labels for line in of_query[query]]
        text = "query-id\tcorpus-id\tscore\n" + "".join(f"{line}\n" for line in lines)
        (out / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    records = (json.dumps(queries[query], ensure_ascii=False) for query in kept)
    (out / "queries.jsonl").write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    return out


def hold_out(source: Path, out: Path, chosen: Callable[[dict[str, Any]], bool]) -> Path:
    """Write the dataset at ``source`` to ``out``, with the chosen training questions as its test split.

    Args:
        source: Dataset directory.
        out: Where it goes.
        chosen: Whether a training question, given its record, moves to the test split.
    """
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in _lines(source / "queries.jsonl")]
    held = {record["_id"] for record in records if chosen(record)}
    header, *train = _lines(source / "qrels" / "train.tsv")
    splits: dict[str, list[str]] = {"train": [], "test": []}
    for line in train:
        splits["test" if line.split("\t")[0] in held else "train"].append(line)
    splits["dev"] = _lines(source / "qrels" / "dev.tsv")[1:]
    for split, lines in splits.items():
        (out / "qrels" / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    for name in ("corpus.jsonl", "queries.jsonl"):
        (out / name).write_bytes((source / name).read_bytes())
    return out


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
