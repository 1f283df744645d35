"""The input of writers, and counts of the content that a format cannot hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data.beir import Metadata, read_passages, read_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES, Dataset
from gnnretrieval.data.importing import NEGATIVES
from gnnretrieval.data.lines import read_lines
from gnnretrieval.data.records import Passage, Query
from gnnretrieval.errors import InputError

Lost = dict[str, int]  # counts of content that a format cannot hold, by description
_BREAKS = re.compile(r"[\t\n\r]")


class Contents(NamedTuple):
    """A dataset that a writer can read several times.

    Attributes:
        dataset: The dataset.
        passages: A function that gives the passages with their metadata.
        queries: A function that gives the queries with their metadata.
        negatives: A function from a split to the passage and kind of each negative, by query id.
    """

    dataset: Dataset
    passages: Callable[[], Iterator[tuple[Passage, Metadata]]]
    queries: Callable[[], Iterator[tuple[Query, Metadata]]]
    negatives: Callable[[str], dict[str, list[tuple[str, str]]]]

    @property
    def splits(self) -> list[str]:
        """Splits with judgements."""
        return self.dataset.splits

    def split_of(self) -> dict[str, str]:
        """The split of every judged query."""
        return {query: split for split in reversed(self.splits) for query in self.dataset.split(split)}

    @classmethod
    def of(cls, dataset: Dataset) -> Contents:
        """The contents of ``dataset``."""
        return cls(
            dataset,
            lambda: _kept(read_passages(dataset.path / CORPUS, unique=False), set(dataset.passage_ids)),
            lambda: _kept(read_queries(dataset.path / QUERIES, unique=False), set(dataset.query_ids)),
            lambda split: _negatives(dataset, split),
        )

    def count_lost_negatives(
        self, lost: Lost, holds: Callable[[str, str], bool] = lambda split, query: False, kinds: Container[str] = ()
    ) -> None:
        """Count negatives that a format cannot hold.

        Args:
            lost: Where they are counted.
            holds: Whether the format holds the negatives of a query in a split.
            kinds: Kinds that it tells apart from others.
        """
        for split in negatives_files(self.dataset):
            for query, negatives in self.negatives(split).items():
                if holds(split, query):
                    lost["kinds of negatives"] += sum(kind not in kinds for _, kind in negatives)
                else:
                    lost["negatives"] += len(negatives)


def one_line(text: str, lost: Lost) -> str:
    """``text`` without tabs and line breaks."""
    if not _BREAKS.search(text):
        return text
    lost["tabs and line breaks in texts (spaces now)"] += 1
    return _BREAKS.sub(" ", text)


def count_padded(ids: Iterable[str], lost: Lost) -> None:
    """Count ids with white space around them, which most readers strip."""
    lost["white space around ids"] += sum(id_ != id_.strip() for id_ in ids)


def _kept(records: Iterator[tuple[Any, Metadata]], ids: set[str]) -> Iterator[tuple[Any, Metadata]]:
    return ((record, metadata) for record, metadata in records if record.id in ids)


def negatives_files(dataset: Dataset) -> dict[str, Path]:
    """File of negatives by split; a dataset that was not imported has none."""
    return {file.stem: file for file in sorted((dataset.path / NEGATIVES).glob("*.tsv"))}


def _negatives(dataset: Dataset, split: str) -> dict[str, list[tuple[str, str]]]:
    """Passage and kind of each negative of a split, by query id."""
    path, passages, queries = negatives_files(dataset).get(split), set(dataset.passage_ids), set(dataset.query_ids)
    negatives: dict[str, list[tuple[str, str]]] = {}
    for number, line in read_lines(path, "negatives") if path else ():
        columns = line.split("\t")
        if len(columns) != 3:
            raise InputError(f"found {len(columns)} columns, wanted three: query, passage and kind.", path, number)
        query, passage, kind = columns
        if query in queries and passage in passages:
            negatives.setdefault(query, []).append((passage, kind))
    return negatives
