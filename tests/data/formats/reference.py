"""Every format read a second time, whole and plainly, by its documentation: what readers and import are held to.

Nothing here is shared with the readers but the names that a table's columns may have.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gnnretrieval.data.formats.table import COLUMNS

SURROGATE = re.compile("[\ud800-\udfff]")
WHOLE = re.compile(rb"[+]?\d+")
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
REPEATING = {"msmarco-triples", "msmarco-top1000", "dpr-training", "squad"}
IMPLYING = {"msmarco-triples", "msmarco-id-triples", "dpr-training", "squad"}
JUDGING = {"beir-qrels", "msmarco-id-triples", "trec-qrels", "qrels"}


class Refused(Exception):
    """The documentation does not allow this."""


class Item(NamedTuple):
    """One record: ``passage`` (id, title, text), ``query`` (id, text), ``judgement`` or ``negative`` (three)."""

    kind: str
    values: tuple
    metadata: Mapping[str, Any] = {}


class File(NamedTuple):
    """A file to import."""

    format: str
    split: str
    name: str
    data: bytes


def require(condition: bool) -> None:
    if not condition:
        raise Refused


def text_of(data: bytes) -> str:
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8").removeprefix("\ufeff")
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
        raise Refused from None


def lines(text: str) -> list[str]:
    """Lines that are not blank."""
    return [line for line in (line.removesuffix("\r") for line in text.split("\n")) if line.strip()]


def plain(text: str, columns: int) -> list[list[str]]:
    rows = [line.split("\t") for line in lines(text)]
    require(all(len(row) == columns for row in rows))
    return rows


def quoted(text: str, delimiter: str) -> list[list[str]]:
    """RFC 4180 with any delimiter: a quote inside a field that is not quoted is text."""
    rows: list[list[str]] = []
    row: list[str] = []
    place, size = 0, len(text)
    while place < size:
        if text[place] == '"':
            parts = []
            while True:
                end = text.find('"', place + 1)
                require(end >= 0)
                parts.append(text[place + 1 : end])
                place = end + 1
                if place < size and text[place] == '"':
                    parts.append('"')
                    continue
                break
            row.append("".join(parts))
        else:
            end = place
            while end < size and text[end] not in (delimiter, "\n", "\r"):
                end += 1
            row.append(text[place:end])
            place = end
        if place < size and text[place] == delimiter:
            place += 1
            if place == size or text[place] in "\r\n":
                row.append("")
            else:
                continue
        if place < size:
            ending = re.compile(r"\r*\n|\r+\Z").match(text, place)
            require(ending is not None)
            place = ending.end()
        rows.append(row)
        row = []
    return [row for row in rows if any(field.strip() for field in row)]


def ident(value: Any) -> str:
    require(isinstance(value, str))
    value = value.strip()
    require(value != "" and not set(value) & set("\t\n\r"))
    return value


def integer(value: str) -> int:
    require(re.fullmatch(r"[+-]?[0-9]{1,9}", value.strip(), re.ASCII) is not None)
    return int(value)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def loaded(text: str, key: str | None = None) -> Any:
    """A JSON value, which has no half of a surrogate pair (under ``key``)."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused from None
    read = found.get(key) if key is not None and isinstance(found, dict) else found
    require(not SURROGATE.search(json.dumps(read, ensure_ascii=False)))
    return found


def strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def beir_texts(text: str, kind: str) -> list[Item]:
    found = []
    for record in map(loaded, lines(text)):
        require(isinstance(record, dict))
        id_, body, metadata = record.get("_id"), record.get("text"), record.get("metadata")
        require((isinstance(body, str) and metadata is None) or (isinstance(body, str) and isinstance(metadata, dict)))
        ident(id_)
        require(not set(id_) & set("\t\n\r"))
        require(kind == "passage" or bool(body.strip()))
        title = record.get("title") if kind == "passage" else None
        require(title is None or isinstance(title, str))
        values = (id_, (title or "").strip(), body) if kind == "passage" else (id_, body)
        found.append(Item(kind, values, metadata or {}))
    require(bool(found))
    return found


def beir_qrels(text: str) -> list[Item]:
    rows = plain(text, 3)
    if rows and rows[0][2].strip().casefold() in {"score", "relevance", "rel", "label"}:
        del rows[0]
    return [Item("judgement", (query, passage, integer(score))) for query, passage, score in rows]


def collection(text: str) -> list[Item]:
    return [Item("passage", (ident(id_), "", body)) for id_, body in plain(text, 2)]


def queries(text: str) -> list[Item]:
    return [Item("query", (ident(id_), body)) for id_, body in plain(text, 2)]


def id_triples(text: str) -> list[Item]:
    found = []
    for row in plain(text, 3):
        query, positive, negative = map(ident, row)
        found += [Item("judgement", (query, positive, 1)), Item("negative", (query, negative, "triple"))]
    return found


def triples(text: str) -> list[Item]:
    found = []
    for row in plain(text, 3):
        query, positive, negative = (digest(one)[:16] for one in row)
        found += [
            Item("query", (query, row[0])),
            Item("passage", (positive, "", row[1])),
            Item("passage", (negative, "", row[2])),
            Item("judgement", (query, positive, 1)),
            Item("negative", (query, negative, "triple")),
        ]
    return found


def top1000(text: str) -> list[Item]:
    found = []
    for query, passage, asked, body in plain(text, 4):
        query, passage = ident(query), ident(passage)
        found += [
            Item("query", (query, asked)),
            Item("passage", (passage, "", body)),
            Item("negative", (query, passage, "candidate")),
        ]
    return found


def trec_qrels(text: str) -> list[Item]:
    found = []
    for line in lines(text):
        fields = line.encode().split()
        require(len(fields) == 4)
        query, _, passage, relevance = (field.decode() for field in fields)
        found.append(Item("judgement", (query, passage, integer(relevance))))
    return found


def topics(text: str) -> list[Item]:
    found, block, tag = [], None, ""
    for line in map(str.strip, lines(text)):
        lowered = line.lower()
        if lowered == "<top>":
            require(block is None)
            block, tag = {}, ""
        elif lowered == "</top>":
            require(block is not None)
            fields = {}
            for name, parts in block.items():
                joined = re.sub(r"\s*</\w+>\Z", "", " ".join(parts).rstrip()).strip()
                lead = re.match(r"(number|topic|description|narrative)\s*:", joined, re.IGNORECASE)
                fields[name] = joined[lead.end() :].strip() if lead else joined
            require(bool(fields.get("num")) and bool(fields.get("title")))
            metadata = {
                long: fields[s] for s, long in (("desc", "description"), ("narr", "narrative")) if fields.get(s)
            }
            found.append(Item("query", (ident(fields["num"]), fields["title"]), metadata))
            block = None
        elif block is not None:
            require(not lowered.endswith("</top>"))
            opened = re.match(r"<(\w+)>", line)
            if opened:
                tag = opened[1].lower()
                require(tag not in block or tag not in ("num", "title", "desc", "narr"))
                line = line[opened.end() :].lstrip()
            block.setdefault(tag, []).append(line)
        else:
            require(not lowered.startswith("<top>"))
    require(block is None)
    return found


def dpr_passages(text: str) -> list[Item]:
    rows = quoted(text, "\t")
    if rows and rows[0][0].strip().casefold() == "id":
        require([column.strip().casefold() for column in rows[0]] == ["id", "text", "title"])
        del rows[0]
    require(all(len(row) == 3 for row in rows))
    return [Item("passage", (ident(id_), title.strip(), body)) for id_, body, title in rows]


def dpr_qa(text: str, split: str) -> list[Item]:
    found = []
    for row in quoted(text, "\t"):
        require(len(row) == 2)
        try:
            answers = ast.literal_eval(row[1].strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Refused from None
        require(strings(answers) and not any(map(SURROGATE.search, answers)))
        found.append(Item("query", (f"{split}-{len(found)}", row[0]), {"answers": answers}))
    return found


def dpr_training(text: str, split: str) -> list[Item]:
    records = loaded(text)
    require(isinstance(records, list))
    found = []
    for number, record in enumerate(records):
        query = f"{split}-{number}"
        require(isinstance(record, dict) and isinstance(record.get("question"), str) and "positive_ctxs" in record)
        answers = record.get("answers", [])
        require(strings(answers))
        found.append(Item("query", (query, record["question"]), {"answers": answers} if answers else {}))
        for key, kind in (
            ("positive_ctxs", ""),
            ("negative_ctxs", "negative"),
            ("hard_negative_ctxs", "hard_negative"),
        ):
            contexts = record.get(key, [])
            require(isinstance(contexts, list))
            for context in contexts:
                require(isinstance(context, dict) and isinstance(context.get("text"), str))
                title = context.get("title") or ""
                require(isinstance(title, str))
                given = [context[name] for name in ("passage_id", "psg_id") if context.get(name) not in (None, "")]
                id_ = given[0] if given else digest(f"{title}\n{context['text']}")[:16]
                require(type(id_) in (str, int))
                id_ = ident(str(id_))
                found.append(Item("passage", (id_, title.strip(), context["text"])))
                found.append(Item("negative", (query, id_, kind)) if kind else Item("judgement", (query, id_, 1)))
    return found


def squad(text: str) -> list[Item]:
    def each(value: Any, key: str) -> list[dict]:
        inner = value.get(key)
        require(isinstance(inner, list) and all(isinstance(one, dict) for one in inner))
        return inner

    found, file = [], loaded(text, "data")
    require(isinstance(file, dict))
    for article in each(file, "data"):
        title = article.get("title") or ""
        require(isinstance(title, str))
        for paragraph in each(article, "paragraphs"):
            context = paragraph.get("context")
            require(isinstance(context, str))
            passage = ident(f"{'_'.join(title.split())}#{digest(context)[:8]}")
            found.append(Item("passage", (passage, title.replace("_", " ").strip(), context)))
            for question in each(paragraph, "qas"):
                impossible = question.get("is_impossible", False)
                require(type(impossible) is bool and isinstance(question.get("question"), str))
                answers = [] if impossible else each(question, "answers")
                for answer in answers:
                    require(isinstance(answer.get("text"), str) and type(answer.get("answer_start")) is int)
                    require(0 <= answer["answer_start"] <= len(context))
                metadata: dict[str, Any] = {"is_impossible": True} if impossible else {}
                if answers:
                    metadata["answers"] = [answer["text"] for answer in answers]
                    metadata["answer_starts"] = [answer["answer_start"] for answer in answers]
                query = ident(question.get("id"))
                found.append(Item("query", (query, question["question"]), metadata))
                if not impossible:
                    found.append(Item("judgement", (query, passage, 1)))
    return found


def table(data: bytes, kind: str, name: str) -> list[Item]:
    if name.endswith(".parquet"):
        header, rows = parquet(data)
    else:
        header, *rows = quoted(text_of(data), "," if ".csv" in name else "\t") or [[]]
    require(bool(header))
    known = [column.strip().casefold() for column in header]
    require(len(set(known)) == len(known))
    places = {}
    for field, usual in COLUMNS[kind].items():
        present = [known.index(one) for one in usual if one in known]
        require(bool(present) or field in ("title", "answers"))
        places[field] = present[0] if present else None
    found = []
    for row in rows:
        require(len(row) == len(header))
        rest = {
            column.strip(): row[place]
            for place, column in enumerate(header)
            if place not in places.values() and row[place] not in (None, "") and row[place] == row[place]
        }
        cell = {field: None if place is None else row[place] for field, place in places.items()}
        if kind == "qrels":
            ids = [ident(as_text(cell[field])) for field in ("query", "passage")]
            found.append(Item("judgement", (*ids, integer(str(cell["relevance"])))))
            continue
        id_, text = ident(as_text(cell["id"])), as_text(cell["text"])
        if kind == "passages":
            found.append(Item("passage", (id_, as_text(cell["title"] or "").strip(), text), rest))
            continue
        answers = cell["answers"]
        if answers not in (None, ""):
            rest["answers"] = several(answers)
        found.append(Item("query", (id_, text), rest))
    return found


def as_text(value: Any) -> str:
    require(type(value) in (str, int))
    return str(value)


def several(value: Any) -> list[str]:
    """A cell of answers: a list of strings, as JSON or Parquet has them, or one string."""
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        value = found if strings(found) else [value]
    require(strings(value) and not any(map(SURROGATE.search, value)))
    return value


def parquet(data: bytes) -> tuple[list[str], list[list[Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        found = pyarrow.parquet.read_table(io.BytesIO(data), use_threads=False)
        return found.column_names, [list(row) for row in zip(*(c.to_pylist() for c in found.columns), strict=True)]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, ValueError):
        raise Refused from None


def read(file: File) -> list[Item]:
    """The records of a file."""
    if file.format in COLUMNS:
        return table(file.data, file.format, file.name)
    text = text_of(file.data)
    readers: dict[str, Callable[[], list[Item]]] = {
        "beir-corpus": lambda: beir_texts(text, "passage"),
        "beir-queries": lambda: beir_texts(text, "query"),
        "beir-qrels": lambda: beir_qrels(text),
        "msmarco-collection": lambda: collection(text),
        "msmarco-queries": lambda: queries(text),
        "msmarco-triples": lambda: triples(text),
        "msmarco-id-triples": lambda: id_triples(text),
        "msmarco-top1000": lambda: top1000(text),
        "trec-qrels": lambda: trec_qrels(text),
        "trec-topics": lambda: topics(text),
        "dpr-passages": lambda: dpr_passages(text),
        "dpr-training": lambda: dpr_training(text, file.split),
        "dpr-qa": lambda: dpr_qa(text, file.split),
        "squad": lambda: squad(text),
    }
    return readers[file.format]()


def dataset(files: list[File]) -> dict[str, Any]:
    """What import makes of files: ``passages``, ``queries`` and, by split, ``judgements`` and ``negatives``."""
    passages: dict[str, tuple] = {}
    queries_: dict[str, tuple] = {}
    repeated: dict[str, tuple] = {}
    judged: dict[str, dict[tuple, int]] = {}
    negatives: dict[str, dict[tuple, None]] = {}
    empty: set[str] = set()
    implied_by: dict[str, set[tuple]] = {}
    order = sorted(files, key=lambda one: tuple(one.format in group for group in (JUDGING, REPEATING, IMPLYING)))
    for file in order:
        repeats = file.format in REPEATING
        for kind, values, metadata in read(file):
            require(not non_finite(metadata))
            id_ = values[0]
            if kind == "passage":
                if id_ in passages:
                    require(repeats and repeated.get(id_, values) == values)
                    continue
                if repeats:
                    repeated[id_] = values
                passages[id_] = (*values, metadata)
                if not values[1] and not values[2].strip():
                    empty.add(id_)
            elif kind == "query":
                require(bool(values[1].strip()) and queries_.get(id_, values)[:2] == values)
                queries_.setdefault(id_, (*values, metadata))
            else:
                require(values[0] in queries_ and values[1] in passages)
                if values[1] in empty:
                    continue
                if kind == "negative":
                    negatives.setdefault(file.split, {})[values] = None
                    continue
                of_split, pair = judged.setdefault(file.split, {}), values[:2]
                own, implied = file.format not in IMPLYING, implied_by.setdefault(file.split, set())
                before = of_split.get(pair)
                if before is None or (own and pair in implied and values[2] > 0):
                    of_split[pair] = values[2]
                else:
                    require(before == values[2] or (not own and before > 0))
                implied.difference_update({pair} if own else ())
                implied.update(() if own or before is not None else {pair})
    kept = [values for id_, values in passages.items() if id_ not in empty]
    require(bool(kept) and bool(queries_))
    return {
        "passages": kept,
        "queries": list(queries_.values()),
        "judgements": {split: [(*pair, value) for pair, value in of.items()] for split, of in judged.items()},
        "negatives": {split: list(of) for split, of in negatives.items()},
    }


def non_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(non_finite, value.values()))
    if isinstance(value, list):
        return any(map(non_finite, value))
    return (isinstance(value, float) and not math.isfinite(value)) or not isinstance(value, str | int | float | None)


def run(data: bytes) -> dict[str, list[tuple[str, float]]]:
    """A run of six columns, five or three: (passage, score) by query, ordered as trec_eval orders them."""
    import numpy as np

    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise Refused from None
    found: dict[str, dict[str, float]] = {}
    lines = [line.split() for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    try:
        data.decode()
    except UnicodeDecodeError:
        raise Refused from None
    require(b"\0" not in data)
    first = next(filter(None, lines), [])
    require(first[:1] != [b"query-id"])
    width = len(first) if len(first) == 3 else 5 if _lacks_tag(first) else 6
    for fields in filter(None, lines):
        require(len(fields) == width)
        value = b"-" + fields[2] if width == 3 else fields[4]
        require((WHOLE if width == 3 else NUMBER).fullmatch(fields[2] if width == 3 else value) is not None)
        query, passage = fields[0].decode(), fields[1 if width == 3 else 2].decode()
        scores = found.setdefault(query, {})
        require(passage not in scores)
        with np.errstate(over="ignore"):
            scores[passage] = float(np.float32(float(value)))
        require(width > 3 or len(set(scores.values())) == len(scores))
    require(bool(found))
    return {
        query: sorted(scores.items(), key=lambda one: (one[1], one[0].encode()), reverse=True)
        for query, scores in found.items()
    }


def _lacks_tag(fields: list[bytes]) -> bool:
    return len(fields) == 5 and fields[1].upper() in (b"Q0", b"0") and NUMBER.fullmatch(fields[4]) is not None
