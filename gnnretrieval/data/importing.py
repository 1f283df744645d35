"""Import files of any known format, read as streams, into one dataset directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, time
from decimal import Decimal
from json.encoder import encode_basestring as quoted
from pathlib import Path
from typing import IO, Any

from gnnretrieval.data.beir import write_qrels
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.formats.parsed import FileRecord, Negative, Reader
from gnnretrieval.data.formats.recognise import ALL_FORMATS
from gnnretrieval.data.formats.table import COLUMNS, Table
from gnnretrieval.data.id_register import IdRegister
from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.data.sources import Source
from gnnretrieval.errors import InputError
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact

NEGATIVES = "negatives"  # folder with one file per split: query, passage and kind, separated by tabs
KIND = "dataset"


def import_dataset(
    sources: Sequence[Source],
    out: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    skip_unknown: bool = False,
    overwrite: bool = False,
) -> Artifact:
    """Import ``sources`` into the dataset directory ``out``; only ids and judgements are held in memory.

    A repeated query with the same text is kept once, and so is a passage in formats that repeat passages. A passage
    with neither title nor text is left out, with its judgements. Negatives of a format go to ``negatives/SPLIT.tsv``.
    Answers and other fields become metadata.

    Args:
        sources: Files, see :func:`~gnnretrieval.data.sources.source_of`; a repeated file is read once.
        out: Where the dataset goes.
        columns: Column by field, for tables whose columns do not have the usual names: ``text`` in every table that
            has one, ``passages.text`` in those of passages.
        skip_unknown: Leave out judgements and negatives of unknown queries and passages.
        overwrite: Replace a dataset made from other sources.

    Returns:
        The dataset; ``counts`` in its ``meta.json`` has the numbers of imported and of left out records.

    Raises:
        InputError: a source does not have its format, an id is repeated, a judgement has an unknown id or contradicts
            another, or there are no passages or no queries.
    """
    names = dict(columns or {})
    _require_fields(names)
    sources = list(dict.fromkeys(sources))
    inputs = _hashes(sources)
    formats = {source: ALL_FORMATS[source.format] for source in sources}
    # Passages and queries first: judgements refer to them. Formats that only imply judgements come last.
    order = sorted(
        sources, key=lambda source: (not formats[source].texts, formats[source].repeats, formats[source].implies)
    )

    def write(directory: Path) -> dict[str, Any]:
        with ExitStack() as stack:
            writer = _Writer(directory, stack, skip_unknown)
            for source in order:
                say(f"{source.path}: {source.format}{f', {source.split}' if source.split else ''}")
                writer.take(source, _reader(source, names))
            counts = writer.finish(order)
        for line in _in_words(counts):
            say(line)
        return {"counts": counts}

    config = {"columns": names, "skip_unknown": skip_unknown}
    return make_artifact(out, KIND, inputs=inputs, config=config, write=write, overwrite=overwrite)


def _hashes(sources: Sequence[Source]) -> dict[str, str]:
    """Hash by name of each source; further files of one name, from other folders, get a number."""
    hashes: dict[str, str] = {}
    for source in sources:
        name, number = source.name, 1
        while name in hashes:
            number += 1
            name = f"{source.name} ({number})"
        hashes[name] = source.hash
    return hashes


def _require_fields(names: Mapping[str, str]) -> None:
    known = sorted({field for fields in COLUMNS.values() for field in fields})
    for name in names:
        kind, _, field = name.rpartition(".")
        if field not in known or (kind and field not in COLUMNS.get(kind, ())):
            raise InputError(
                f"a table has no field {name!r}: fields are {', '.join(known)}, of one kind of table with its name "
                "before them, such as passages.text."
            )


def _reader(source: Source, names: Mapping[str, str]) -> Reader:
    reader = ALL_FORMATS[source.format].read
    if not isinstance(reader, Table) or not names:
        return reader
    own = {field: names.get(f"{reader.kind}.{field}", names.get(field)) for field in COLUMNS[reader.kind]}
    return Table(reader.kind, {field: name for field, name in own.items() if name is not None})


def _wrong(message: str, entry: FileRecord, source: Source) -> InputError:
    return InputError(f"{entry.where}: {message}" if entry.where else message, source.path, entry.line)


class _Writer:
    """Writes the files of the dataset, and keeps their ids and judgements in memory."""

    def __init__(self, directory: Path, stack: ExitStack, skip_unknown: bool) -> None:
        self.directory, self.stack, self.skip_unknown = directory, stack, skip_unknown
        self.files: dict[str, IO[str]] = {}
        self.encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_text).encode
        self.passages, self.empty = IdRegister(), IdRegister()
        self.queries: dict[str, int] = {}  # hash of the text by id
        self.repeated: dict[str, int] = {}  # the same for passages, of formats that repeat them
        self.judged: dict[str, dict[tuple[str, str], int]] = {}  # relevance by (query, passage) by split
        self.implied: set[tuple[str, str, str]] = set()  # (query, passage, split) of implied judgements
        self.negatives: dict[str, IdRegister] = {}
        self.counts = dict.fromkeys(("repeated_queries", "repeated_judgements", "empty_passages", "of_unknown"), 0)
        self.file(CORPUS), self.file(QUERIES)

    def file(self, name: str) -> IO[str]:
        """A file of the dataset, opened for writing."""
        if name not in self.files:
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self.files[name] = self.stack.enter_context(path.open("w", 1 << 20, encoding="utf-8", newline="\n"))
        return self.files[name]

    def take(self, source: Source, reader: Reader) -> None:
        """Write the records of a source."""
        repeats = ALL_FORMATS[source.format].repeats
        for entry in reader(source.path, source.split):
            record = entry.record
            if isinstance(record, Passage):
                self._passage(record, entry, source, repeats)
            elif isinstance(record, Query):
                self._query(record, entry, source)
            elif isinstance(record, Qrel):
                self._judgement(record, entry, source)
            else:
                self._negative(record, entry, source)

    def _passage(self, passage: Passage, entry: FileRecord, source: Source, repeats: bool) -> None:
        text = hash(passage) if repeats else 0
        if not self.passages.add(passage.id):
            if not repeats:
                raise _wrong(f"passage id {passage.id!r} is repeated: rename or delete one of the two.", entry, source)
            if self.repeated.get(passage.id, text) != text:
                raise _wrong(
                    f"passage {passage.id!r} is repeated with another text: rename or delete one of the two.",
                    entry,
                    source,
                )
            return
        if repeats:
            self.repeated[passage.id] = text
        if not passage.title and not passage.text.strip():
            self.empty.add(passage.id)
            self.counts["empty_passages"] += 1
            return
        line = f'{{"_id": {quoted(passage.id)}, "title": {quoted(passage.title)}, "text": {quoted(passage.text)}'
        self._write(CORPUS, line, entry, source)

    def _query(self, query: Query, entry: FileRecord, source: Source) -> None:
        text, before = hash(query.text), self.queries.get(query.id)
        if before == text:
            self.counts["repeated_queries"] += 1
            return
        if before is not None:
            raise _wrong(
                f"query {query.id!r} is repeated with another text: rename or delete one of the two.",
                entry,
                source,
            )
        if not query.text.strip():
            raise _wrong(f"query {query.id!r} has an empty text: give it one or delete it.", entry, source)
        self.queries[query.id] = text
        line = f'{{"_id": {quoted(query.id)}, "text": {quoted(query.text)}'
        self._write(QUERIES, line, entry, source)

    def _write(self, name: str, line: str, entry: FileRecord, source: Source) -> None:
        """Write a JSON line that lacks metadata and closing brace: three times as fast as encoding a dict."""
        if entry.metadata:
            try:
                line += f', "metadata": {self.encode(entry.metadata)}'
            except (TypeError, ValueError, RecursionError):
                faulty = next(key for key, value in entry.metadata.items() if not self._is_json(value))
                raise _wrong(
                    f"metadata {faulty!r} of {excerpt(entry.record[0])}, {excerpt(entry.metadata[faulty])}, cannot be "
                    "written as JSON: change it or leave it out.",
                    entry,
                    source,
                ) from None
        self.files[name].write(line + "}\n")

    def _is_json(self, value: Any) -> bool:
        try:
            self.encode(value)
        except (TypeError, ValueError, RecursionError):
            return False
        return True

    def _known(self, query: str, passage: str, entry: FileRecord, source: Source) -> bool:
        for what, id_, known in (("query", query, self.queries), ("passage", passage, self.passages)):
            if id_ not in known:
                if self.skip_unknown:
                    self.counts["of_unknown"] += 1
                    return False
                raise _wrong(
                    f"there is no {what} {id_!r} in these sources: add the file that has it, or leave such lines out "
                    "(--skip-unknown).",
                    entry,
                    source,
                )
        return passage not in self.empty

    def _judgement(self, qrel: Qrel, entry: FileRecord, source: Source) -> None:
        if not self._known(qrel.query_id, qrel.passage_id, entry, source):
            return
        judged = self.judged.setdefault(source.split, {})
        pair, implies = qrel[:2], ALL_FORMATS[source.format].implies
        before = judged.get(pair)
        key = (*pair, source.split)
        if before == qrel.relevance or (implies and before is not None and before > 0):
            self.counts["repeated_judgements"] += 1
        elif before is not None and not (key in self.implied and qrel.relevance > 0):
            raise _wrong(
                f"query {qrel.query_id!r} and passage {qrel.passage_id!r} are judged {qrel.relevance} here, and "
                f"{before} before: delete one of the two.",
                entry,
                source,
            )
        else:
            judged[pair] = qrel.relevance
            if implies:
                self.implied.add(key)
        # The pair has an explicit judgement now, which no later one may contradict.
        if not implies:
            self.implied.discard(key)

    def _negative(self, negative: Negative, entry: FileRecord, source: Source) -> None:
        if self._known(negative.query_id, negative.passage_id, entry, source):
            seen = self.negatives.setdefault(source.split, IdRegister())
            if seen.add("\t".join(negative)):
                file = self.file(f"{NEGATIVES}/{source.split}.tsv")
                file.write("\t".join(negative) + "\n")

    def finish(self, sources: Sequence[Source]) -> dict[str, Any]:
        """Write the judgements; returns the counts.

        Raises:
            InputError: there are no passages or no queries.
        """
        for split, judged in self.judged.items():
            rows = (Qrel(*pair, relevance) for pair, relevance in judged.items())
            write_qrels(self.directory / "qrels" / f"{split}.tsv", rows)
        passages = len(self.passages) - len(self.empty)
        named_sources = ", ".join(source.path.name for source in sources)
        for what, count in (("passages", passages), ("queries", len(self.queries))):
            if not count:
                raise InputError(f"none of these files has {what} ({named_sources}): add a file that has them.")
        return {
            "passages": passages,
            "queries": len(self.queries),
            "judgements": {split: len(judged) for split, judged in self.judged.items()},
            "negatives": {split: len(seen) for split, seen in self.negatives.items()},
            "left_out": self.counts,
        }


def _as_text(value: Any) -> str:
    """A value of Parquet that JSON lacks, as text: a date, a time or a decimal number."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError


def _in_words(counts: Mapping[str, Any]) -> Iterator[str]:
    left_out = counts["left_out"]
    words = {
        "repeated_queries": "repeated queries with the same text",
        "repeated_judgements": "repeated judgements",
        "empty_passages": "passages with neither title nor text",
        "of_unknown": "judgements and negatives of unknown queries or passages",
    }
    for key, what in words.items():
        if left_out[key]:
            yield f"left out: {what} ({left_out[key]:,})"
    if not counts["judgements"]:
        yield "no judgements: add qrels before you build a graph from this dataset"
