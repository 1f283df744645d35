"""Writer of tables with named columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.beir import Metadata
from gnnretrieval.data.formats.contents import Contents, Lost, count_padded
from gnnretrieval.data.formats.table import COLUMNS
from gnnretrieval.platform.extras import extra

_ROWS = 10_000  # rows of a Parquet file that are written together


def write_table(data: Contents, directory: Path, lost: Lost, ending: str) -> None:
    """Write ``passages``, ``queries`` and ``qrels.SPLIT`` as ``tsv``, ``csv`` or ``parquet``, metadata as columns."""
    data.count_lost_negatives(lost)
    count_padded([*data.dataset.passage_ids, *data.dataset.query_ids], lost)
    of_passages = _names("passages", (metadata for _, metadata in data.passages()), lost)
    of_queries = _names("queries", (metadata for _, metadata in data.queries()), lost)
    tables: dict[str, tuple[list[str], Iterator[Mapping[str, Any]]]] = {
        "passages": (
            ["id", "title", "text", *of_passages.values()],
            (
                {"id": passage.id, "title": passage.title, "text": passage.text, **_cells(metadata, of_passages)}
                for passage, metadata in data.passages()
            ),
        ),
        "queries": (
            ["id", "query", *of_queries.values()],
            (
                {"id": query.id, "query": query.text, **_cells(metadata, of_queries)}
                for query, metadata in data.queries()
            ),
        ),
    }
    for split in data.splits:
        judgements = (
            {"query_id": query, "passage_id": passage, "relevance": value}
            for query, judged in data.dataset.split(split).items()
            for passage, value in judged.items()
        )
        tables[f"qrels.{split}"] = (["query_id", "passage_id", "relevance"], judgements)
    for name, (columns, rows) in tables.items():
        path = directory / f"{name}.{ending}"
        if ending == "parquet":
            _write_parquet(path, columns, rows)
        else:
            _write_delimited(path, columns, rows, "\t" if ending == "tsv" else ",")


def _names(kind: str, metadata: Iterable[Metadata], lost: Lost) -> dict[str, str]:
    """Column by metadata key: the key, or another name where a reader would confuse it with a field or a column."""
    taken = {name for fields in COLUMNS.values() for usual in fields.values() for name in usual}
    keys = dict.fromkeys(key for record in metadata for key in record)
    names = {"answers": "answers"} if "answers" in keys and kind == "queries" else {}  # a field
    for key in [key for key in keys if key not in names]:
        name, number = key, 1
        while name.strip().casefold() in taken or name != name.strip() or not name:
            number += 1
            name = f"metadata {key.strip()}" if number == 2 else f"metadata {key.strip()} {number}"
        lost["names of metadata"] += name != key
        taken.add(name.casefold())
        names[key] = name
    return names


def _cells(metadata: Metadata, names: Mapping[str, str]) -> dict[str, str]:
    """Metadata as cells: strings unchanged, other values as JSON."""
    return {
        names[key]: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
    }


def _write_delimited(path: Path, columns: list[str], rows: Iterator[Mapping[str, Any]], delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, columns, restval="", delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
        )
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(path: Path, columns: list[str], rows: Iterator[Mapping[str, Any]]) -> None:
    pyarrow = extra("pyarrow", "parquet", "Parquet")
    extra("pyarrow.parquet", "parquet", "Parquet")
    kinds = {"relevance": pyarrow.int64()}
    schema = pyarrow.schema([(column, kinds.get(column, pyarrow.string())) for column in columns])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        block: list[dict[str, Any]] = []
        for row in rows:
            block.append({column: row.get(column) for column in columns})
            if len(block) == _ROWS:
                writer.write_table(pyarrow.Table.from_pylist(block, schema))
                block = []
        writer.write_table(pyarrow.Table.from_pylist(block, schema))
