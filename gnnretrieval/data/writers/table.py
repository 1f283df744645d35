"""Tables with named columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.beir import Metadata
from gnnretrieval.data.writers.contents import Contents, Lost
from gnnretrieval.errors import GnnRetrievalError

_ROWS = 10_000  # of a Parquet file, written together


def write_table(data: Contents, directory: Path, lost: Lost, ending: str) -> None:
    """``passages``, ``queries`` and ``qrels.SPLIT`` as ``tsv``, ``csv`` or ``parquet``; metadata are columns."""
    lost["negatives"] = sum(len(found) for split in data.splits for found in data.negatives(split).values())
    rows: dict[str, Callable[[], Iterator[Mapping[str, Any]]]] = {
        "passages": lambda: (
            {"id": one.id, "title": one.title, "text": one.text, **_cells(of)} for one, of in data.passages()
        ),
        "queries": lambda: ({"id": one.id, "query": one.text, **_cells(of)} for one, of in data.queries()),
    }
    for split in data.splits:
        judged = data.dataset.split(split)
        rows[f"qrels.{split}"] = lambda judged=judged: (  # type: ignore[misc]
            {"query_id": query, "passage_id": passage, "relevance": value}
            for query, of in judged.items()
            for passage, value in of.items()
        )
    for name, read in rows.items():
        columns = list(dict.fromkeys(key for row in read() for key in row))
        path = directory / f"{name}.{ending}"
        if ending == "parquet":
            _write_parquet(path, columns, read())
            continue
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file,
                columns,
                restval="",
                delimiter="\t" if ending == "tsv" else ",",
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC,
            )
            writer.writeheader()
            writer.writerows(read())


def _cells(metadata: Metadata) -> dict[str, str]:
    """Metadata as cells: strings as they are, anything else as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
    }


def _write_parquet(path: Path, columns: list[str], rows: Iterator[Mapping[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise GnnRetrievalError("Parquet wants pyarrow: pip install 'gnnretrieval[parquet]'.") from None
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
