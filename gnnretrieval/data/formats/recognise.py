"""Recognise the format of a file from its name and its first lines."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gnnretrieval.data.formats import beir, dpr, ir_datasets_id, msmarco, squad, table, trec
from gnnretrieval.data.formats.parsed import Reader
from gnnretrieval.data.lines import read_lines
from gnnretrieval.errors import InputError, counted, nearest

_SPLITS = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "test": "test",
    "eval": "test",
}
_LOOKED_AT = 5  # first lines of a file that are read


class Format(NamedTuple):
    """A file format.

    Attributes:
        what: Its content, for help.
        read: Its reader.
        has_split: Whether its records belong to a split.
        repeats: Whether it may repeat a passage.
        texts: Whether it has passages or queries, and not only judgements.
        implies: Whether its judgements are implied (1 for a positive); explicit judgements take precedence.
    """

    what: str
    read: Reader
    has_split: bool = False
    repeats: bool = False
    texts: bool = True
    implies: bool = False


FORMATS: dict[str, Format] = {
    "beir-corpus": Format("passages as JSON lines", beir.read_passages),
    "beir-queries": Format("queries as JSON lines", beir.read_queries),
    "beir-qrels": Format("query-id, corpus-id, score", beir.read_qrels, has_split=True, texts=False),
    "msmarco-collection": Format("pid, passage", msmarco.read_collection),
    "msmarco-queries": Format("qid, query", msmarco.read_queries),
    "msmarco-triples": Format(
        "query, positive and negative passage, as texts", msmarco.read_triples, True, True, implies=True
    ),
    "msmarco-id-triples": Format("qid, pid, pid", msmarco.read_id_triples, True, texts=False, implies=True),
    "msmarco-top1000": Format("qid, pid, query, passage", msmarco.read_top1000, True, True),
    "trec-qrels": Format("topic, iteration, document, relevance (MS MARCO's too)", trec.read_qrels, True, texts=False),
    "trec-topics": Format("<top> blocks", trec.read_topics),
    "dpr-passages": Format("id, text, title (psgs_w100.tsv)", dpr.read_passages),
    "dpr-training": Format("questions with passages, as JSON", dpr.read_training, True, True, implies=True),
    "dpr-qa": Format("question, [answers]", dpr.read_qa, True),
    "squad": Format("SQuAD's JSON", squad.read_squad, True, True, implies=True),
    "passages": Format("a table of passages with named columns", table.Table("passages")),
    "queries": Format("a table of queries with named columns", table.Table("queries")),
    "qrels": Format("a table of judgements with named columns", table.Table("qrels"), True, texts=False),
}
# An id of ir_datasets is not a file. Its documents, which several ids share, are a separate source, read first.
IR_DATASETS, IR_DATASETS_DOCUMENTS = "ir-datasets", "ir-datasets-docs"
OF_IDS: dict[str, Format] = {
    IR_DATASETS_DOCUMENTS: Format("documents of an id of ir_datasets", ir_datasets_id.read_documents),
    IR_DATASETS: Format("an id of ir_datasets instead of PATH", ir_datasets_id.read_judged, True, repeats=True),
}
ALL_FORMATS = FORMATS | OF_IDS


def recognise(path: Path) -> str:
    """The format of the file at ``path``.

    Raises:
        InputError: the file cannot be read, or its format is ambiguous or unknown.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    ending, name = (suffixes[-1] if suffixes else ""), path.name.lower()
    if ending in table.PARQUET:
        return _table(table.opened(path)[0], path)
    if not path.is_file():
        reason = "this is a directory" if path.is_dir() else "no such file"
        raise InputError(f"{reason}; wanted a file of passages, queries or judgements.", path)
    first = [line for _, line in islice(read_lines(path, "passages, queries or judgements"), _LOOKED_AT)]
    if not first:
        raise InputError("this file is empty; wanted passages, queries or judgements.", path)
    start = first[0].lstrip()
    if ending == ".json" or start == "[":
        return _json(start, path)
    if start.startswith("{") and ending not in (".tsv", ".csv"):  # in these it may begin an id
        return _json_lines(start, name, path)
    if any(line.strip().lower() == "<top>" for line in first) or start.lower().startswith("<top>"):
        return "trec-topics"
    if name.endswith((".qa.csv", ".qa.csv.gz")):
        return "dpr-qa"
    header = [column.strip().strip('"').casefold() for column in first[0].split("," if ending == ".csv" else "\t")]
    if header == list(dpr.HEADER) and ending != ".csv":  # DPR's has tabs
        return "dpr-passages"
    if ending == ".csv" and len(header) == 1 and ";" in header[0]:
        raise InputError("its columns are separated by semicolons: save it with commas.", path, 1)
    if len(header) > 1 and (kind := table.kind_of(header)) is not None:
        return "beir-qrels" if kind == "qrels" and header[:2] == ["query-id", "corpus-id"] else kind
    if ending == ".csv" and len(header) > 1:
        return _table(first[0].split(","), path)  # an error: columns of no known kind
    return _columns(first, name, path)


def _json(start: str, path: Path) -> str:
    if start.startswith("["):
        return "dpr-training"
    if start.startswith("{"):
        return "squad"
    raise InputError(f"this is neither a JSON list nor an object: {_which()}", path, 1)


def _json_lines(start: str, name: str, path: Path) -> str:
    try:
        record = json.loads(start)
    except ValueError:
        return "squad"
    if not isinstance(record, dict) or "data" in record:
        return "squad"
    if "title" in record or "corpus" in name or "passages" in name or "collection" in name:
        return "beir-corpus"
    if "quer" in name or "question" in name or "topic" in name:
        return "beir-queries"
    raise InputError(f"these JSON lines may be passages or queries: {_which()}", path, 1)


def _columns(first: list[str], name: str, path: Path) -> str:
    rows = [line.split("\t") for line in first]
    width = len(rows[0])
    words = first[0].split()
    if width in (1, 4) and len(words) == 4 and _is_integer(words[3]):
        return "trec-qrels"
    if width == 2:
        return "msmarco-queries" if re.search("quer|question|topic", name) else "msmarco-collection"
    if width == 3 and "triple" in name:
        ids = "qidpid" in name or all(field.strip().isdigit() for row in rows for field in row)
        return "msmarco-id-triples" if ids else "msmarco-triples"
    if width == 3:
        return "beir-qrels" if _is_integer(rows[0][2]) else "msmarco-triples"
    if width == 4:
        return "msmarco-top1000"
    raise InputError(f"no known format has lines of {counted(width, 'column')}: {_which()}", path, 1)


def _is_integer(text: str) -> bool:
    return text.strip().removeprefix("-").removeprefix("+").isdigit()


def _table(columns: list[str], path: Path) -> str:
    kind = table.kind_of(columns)
    if kind is None:
        raise InputError(f"columns {table.listed(columns)} do not identify the table: {_which()}", path)
    return kind


def _which() -> str:
    return "name the format (FORMAT=PATH), one of " + ", ".join(FORMATS) + "."


def named(name: str, path: Path) -> Format:
    """The format called ``name``.

    Raises:
        InputError: there is no such format.
    """
    if name not in ALL_FORMATS:
        known = ", ".join(ALL_FORMATS)
        raise InputError(f"there is no format {name!r}.{nearest(name, ALL_FORMATS)} Formats: {known}.", path)
    return ALL_FORMATS[name]


def split_of(path: Path) -> str | None:
    """The split in a file's name; None where it names none or several."""
    words = re.split(r"[^a-z0-9]+", path.name.lower())
    splits = {_SPLITS[word] for word in words if word in _SPLITS}
    return splits.pop() if len(splits) == 1 else None
