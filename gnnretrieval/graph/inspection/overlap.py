"""Overlap of the dataset's other splits with the queries of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnretrieval.data.beir import read_qrels, read_queries
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.data.inspection.same_text import text_key
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.pages.reports import Figures


class _Split(NamedTuple):
    name: str
    texts: dict[str, str]  # texts of its queries, by id
    relevant: list[str]  # distinct ids of the passages relevant to them


class SplitOverlap(Figures):
    """What a split shares with the graph."""

    queries: int
    """Queries with a relevant passage."""
    same_id: int
    """Queries with an id that is in the graph."""
    same_text: int
    """Queries with a normalised text that is in the graph."""
    relevant_passages: int
    share_with_training_questions: float
    """Share of the relevant passages that are also relevant to a query of the graph."""
    share_never_found: float
    """Share of the relevant passages that are joined to no query of the graph."""


class Overlap(Figures):
    """What the splits that the graph was not built from share with it."""

    dataset: str | None
    """Path of the dataset; None if it is missing."""
    why: str | None
    """Why the splits are not compared; None if they are."""
    splits: dict[str, SplitOverlap]


def overlap_figures(store: Graph, data: str | Path | None = None) -> Overlap:
    """Overlap of each split that the graph was not built from.

    Only queries and judgements are read; the passages are those of the store.

    Args:
        store: The graph.
        data: The dataset directory; None: the directory recorded when the graph was built, if it still exists.

    Raises:
        GnnRetrievalError: ``data`` is not a dataset directory, or has other passages.
    """
    try:
        place = Path(data) if data is not None else store.made_from("dataset")
        if data is None and not place.exists():
            raise ArtifactError(f"{place} does not exist: name the dataset (--data)")
        others = list(_splits(store, place))
    except GnnRetrievalError as error:
        if data is not None:
            raise
        return Overlap(dataset=None, why=str(error).rstrip("."), splits={})
    ids, keys = set[str](), set[int]()
    with store.texts() as texts:
        for query in texts.queries():
            if store.visible is None or store.visible[query.row]:
                keys.add(text_key(query.text))
                ids.add(query.id)
        rows = {split.name: texts.rows_of_passages(split.relevant) for split in others}
    if data is not None and others and not any(rows.values()):
        raise InputError(f"none of its judged passages is in {store.path}: it is another dataset.", place)
    taught = np.zeros(store.num_passages, dtype=bool)
    taught[store.labels[:, 1]] = True
    reached = store.degrees() > 0
    splits = {}
    for split in others:
        relevant = np.array(sorted(rows[split.name].values()), dtype=np.int64)
        splits[split.name] = SplitOverlap(
            queries=len(split.texts),
            same_id=sum(id_ in ids for id_ in split.texts),
            same_text=sum(text_key(text) in keys for text in split.texts.values()),
            relevant_passages=len(relevant),
            share_with_training_questions=float(taught[relevant].mean()) if len(relevant) else 0.0,
            share_never_found=float((~reached[relevant]).mean()) if len(relevant) else 0.0,
        )
    return Overlap(dataset=str(place), why=None, splits=splits)


def _splits(store: Graph, place: Path) -> Iterator[_Split]:
    """The splits of a dataset except the graph's own."""
    recorded = store.meta.get("dataset") or {}
    qrels, where = recorded.get("qrels", "qrels"), recorded.get("where") or {}
    if where:  # a filter needs the whole dataset
        dataset = Dataset.open(place, qrels, where)
        for name in dataset.splits:
            if name != store.config["split"]:
                yield _split(name, dataset.split(name), {query.id: query.text for query in dataset.queries_of(name)})
        return
    files = sorted((place / qrels).glob("*.tsv"))
    if not files:
        raise InputError(f"no judgements <split>.tsv in {qrels}/: this is not the graph's dataset.", place)
    judged = {file.stem: read_qrels(file) for file in files if file.stem != store.config["split"]}
    wanted: set[str] = set().union(*judged.values())
    texts = {query.id: query.text for query, _ in read_queries(place / QUERIES, unique=False) if query.id in wanted}
    for name, qrels_of_split in judged.items():
        yield _split(name, qrels_of_split, texts)


def _split(name: str, qrels: dict[str, dict[str, int]], texts: dict[str, str]) -> _Split:
    relevant = {query: [passage for passage, grade in judged.items() if grade > 0] for query, judged in qrels.items()}
    return _Split(
        name,
        {query: texts[query] for query, passages in relevant.items() if passages and query in texts},
        list(dict.fromkeys(passage for passages in relevant.values() for passage in passages)),
    )
