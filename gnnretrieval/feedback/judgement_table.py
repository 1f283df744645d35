"""``judgements.tsv`` of a dataset from event logs: the passages shown for each labelled question, with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from gnnretrieval.data.lines import read_lines
from gnnretrieval.errors import InputError, counted
from gnnretrieval.feedback.judging import Judgement

_FILE = "judgements.tsv"
_COLUMNS = ("split", "query-id", "corpus-id", "impressions", "clicks", "examined", "rate", "low", "high", "relevance")


class JudgedPair(NamedTuple):
    """The columns of a row that are read again.

    Attributes:
        passage: Id of the passage.
        examined: Expected examinations, to four decimals.
        is_relevant: Whether its relevance is above 0.
    """

    passage: str
    examined: float
    is_relevant: bool


def write_judgements(
    directory: Path, labelled: Mapping[str, Mapping[str, Sequence[Judgement]]], query_ids: Mapping[str, str]
) -> None:
    """Write the table.

    Args:
        directory: Directory of the dataset.
        labelled: Judgements by split and question.
        query_ids: Id of each question.
    """
    with (directory / _FILE).open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(_COLUMNS) + "\n")
        for split, by_question in labelled.items():
            for pair in chain.from_iterable(by_question.values()):
                ids = (split, query_ids[pair.question], pair.passage, str(pair.impressions), str(pair.clicks))
                rates = (f"{value:.4f}" for value in (pair.examined, pair.rate, pair.low, pair.high))
                relevance = "" if pair.relevance is None else str(pair.relevance)
                file.write("\t".join((*ids, *rates, relevance)) + "\n")


def read_judgements(directory: Path, split: str) -> dict[str, list[JudgedPair]]:
    """Pairs of a split by query id.

    Args:
        directory: Directory of a dataset by :func:`gnnretrieval.feedback.import_feedback`.
        split: Name of the split.

    Raises:
        InputError: the table is missing or damaged.
    """
    path = directory / _FILE
    lines = read_lines(path, "the judgements of an import of event logs")
    next(lines, None)
    pairs: dict[str, list[JudgedPair]] = {}
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != len(_COLUMNS):
            raise InputError(
                f"found {counted(len(cells), 'column')}, wanted {len(_COLUMNS)}. Import the logs again.", path, number
            )
        row = dict(zip(_COLUMNS, cells, strict=True))
        if row["split"] == split:
            try:
                examined = float(row["examined"])
            except ValueError:
                raise InputError(
                    f"examined is {row['examined']!r}, wanted a number. Import the logs again.", path, number
                ) from None
            pair = JudgedPair(row["corpus-id"], examined, row["relevance"] not in ("", "0"))
            pairs.setdefault(row["query-id"], []).append(pair)
    return pairs
