"""Reader of DPR's formats: ``psgs_w100.tsv``, the training JSON and ``*.qa.csv`` of facebookresearch/DPR."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.formats.columns import quoted_rows
from gnnretrieval.data.formats.json_array import json_array
from gnnretrieval.data.formats.msmarco import text_id
from gnnretrieval.data.formats.parsed import FileRecord, Negative, id_of
from gnnretrieval.data.lines import excerpt, require_characters
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError, counted

HEADER = ("id", "text", "title")
_NEGATIVES = {"negative_ctxs": "negative", "hard_negative_ctxs": "hard_negative"}


def read_passages(path: Path, split: str) -> Iterator[FileRecord]:
    """``id \\t text \\t title``, quoted as CSV, with this header."""
    for place, (number, fields) in enumerate(quoted_rows(path, "id, text and title", "\t")):
        if len(fields) != 3:
            raise InputError(f"found {counted(len(fields), 'column')}, wanted three (id, text, title).", path, number)
        if place == 0 and fields[0].strip().casefold() == "id":
            if tuple(column.strip().casefold() for column in fields) != HEADER:
                raise InputError(
                    f"found columns {excerpt(fields)}, wanted id, text, title in this order.", path, number
                )
            continue
        yield FileRecord(Passage(id_of(fields[0], "passage", path, number), fields[2].strip(), fields[1]), number)


def read_qa(path: Path, split: str) -> Iterator[FileRecord]:
    """``question \\t ["answer", …]``, without judgements. The ids of questions are ``SPLIT-NUMBER``, from 0."""
    for place, (number, fields) in enumerate(quoted_rows(path, "question and answers", "\t")):
        if len(fields) != 2:
            raise InputError(f"found {counted(len(fields), 'column')}, wanted two (question, answers).", path, number)
        yield FileRecord(Query(f"{split}-{place}", fields[0]), number, {"answers": _answers(fields[1], path, number)})


def _answers(text: str, path: Path, number: int) -> list[str]:
    try:
        answers = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        answers = None
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise InputError(f"found answers {excerpt(text)}, wanted a list of strings, such as ['Paris'].", path, number)
    require_characters(answers, path, number)
    return answers


def read_training(path: Path, split: str) -> Iterator[FileRecord]:
    """A list of questions with ``positive_ctxs``, ``negative_ctxs`` and ``hard_negative_ctxs``, read as a stream.

    The ids of questions are ``SPLIT-NUMBER``, from 0. A passage without an id (``passage_id``, in older files
    ``psg_id``) gets one from its text.
    """
    for place, (number, record) in enumerate(json_array(path, "DPR's training questions")):
        if not isinstance(record, dict):
            raise _wrong(path, number, "question", record, "an object")
        query = f"{split}-{place}"
        answers = record.get("answers", [])
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise _wrong(path, number, "answers", answers, "a list of strings")
        question = _text(record, "question", path, number)
        if "positive_ctxs" not in record:  # the other two are optional in DPR
            raise _wrong(path, number, "keys", list(record), "positive_ctxs among them")
        yield FileRecord(Query(query, question), number, {"answers": answers} if answers else {})
        for passage in _passages(record, "positive_ctxs", path, number):
            yield FileRecord(passage, number)
            yield FileRecord(Qrel(query, passage.id, 1), number)
        for key, kind in _NEGATIVES.items():
            for passage in _passages(record, key, path, number):
                yield FileRecord(passage, number)
                yield FileRecord(Negative(query, passage.id, kind), number)


def _passages(record: Mapping[str, Any], key: str, path: Path, number: int) -> Iterator[Passage]:
    values = record.get(key, [])
    if not isinstance(values, list):
        raise _wrong(path, number, key, values, "a list of passages")
    for value in values:
        if not isinstance(value, dict):
            raise _wrong(path, number, key, value, "passages as objects")
        title, text = value.get("title") or "", _text(value, "text", path, number)
        if not isinstance(title, str):
            raise _wrong(path, number, "title", title, "a string")
        id_ = next((value[name] for name in ("passage_id", "psg_id") if value.get(name) not in (None, "")), None)
        if id_ is None:
            id_ = text_id(f"{title}\n{text}")
        if not isinstance(id_, str | int) or isinstance(id_, bool):
            raise _wrong(path, number, "passage_id", id_, "a string or a number")
        yield Passage(id_of(str(id_), "passage", path, number), title.strip(), text)


def _text(record: Mapping[str, Any], key: str, path: Path, number: int) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise _wrong(path, number, key, value, "a string")
    return value


def _wrong(path: Path, number: int, key: str, value: Any, wanted: str) -> InputError:
    return InputError(f"found {key} {excerpt(value)}, wanted {wanted}: it is not DPR's layout.", path, number)
