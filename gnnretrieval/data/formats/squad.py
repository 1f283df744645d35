"""Reader of SQuAD 1.1 and 2.0: articles of paragraphs with questions, answers and spans, in one JSON file.

Layout: https://rajpurkar.github.io/SQuAD-explorer/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.formats.msmarco import text_id
from gnnretrieval.data.formats.parsed import FileRecord, id_of
from gnnretrieval.data.lines import excerpt, read_text, require_characters
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError


def read_squad(path: Path, split: str) -> Iterator[FileRecord]:
    """Paragraphs as passages with the id ``TITLE#DIGITS``: eight hexadecimal digits of the text's sha256.

    A question's answers and their first characters are metadata: ``answers``, ``answer_starts``. An unanswerable
    question (2.0) has ``is_impossible``, and no relevant passage.
    """
    for where, article in _each(_opened(path), "data", path, "the file"):
        require_characters(article, path, None, where)
        title = article.get("title") or ""
        if not isinstance(title, str):
            raise _wrong(path, f"{where}.title", title, "a string")
        for place, paragraph in _each(article, "paragraphs", path, where):
            context = _text(paragraph, "context", path, place)
            passage = f"{'_'.join(title.split())}#{text_id(context)[:8]}"  # the same in every file and split
            yield FileRecord(Passage(passage, title.replace("_", " ").strip(), context), None, where=place)
            for question_place, question in _each(paragraph, "qas", path, place):
                yield from _question(question, passage, len(context), path, question_place)


def _question(question: Mapping[str, Any], passage: str, length: int, path: Path, where: str) -> Iterator[FileRecord]:
    id_ = id_of(_text(question, "id", path, where), f"question at {where}", path, None)
    impossible = question.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise _wrong(path, f"{where}.is_impossible", impossible, "true or false")
    answers = [] if impossible else list(_each(question, "answers", path, where))
    metadata: dict[str, Any] = {}
    if answers:
        metadata["answers"] = [_text(answer, "text", path, place) for place, answer in answers]
        metadata["answer_starts"] = [_start(answer, length, path, place) for place, answer in answers]
    if impossible:
        metadata["is_impossible"] = True
    yield FileRecord(Query(id_, _text(question, "question", path, where)), None, metadata, where)
    if not impossible:
        yield FileRecord(Qrel(id_, passage, 1), None, where=where)


def _opened(path: Path) -> Mapping[str, Any]:
    text = read_text(path, "SQuAD's JSON")
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} at column {error.colno}. Copy the file again.", path, error.lineno
        ) from None
    except ValueError as error:  # a number of too many digits
        long = re.search(r"\d{4301}", text)
        raise InputError(f"not JSON: {error}.", path, text.count("\n", 0, long.start()) + 1 if long else None) from None
    except RecursionError:
        raise InputError("this JSON is nested too deeply to be SQuAD's.", path) from None
    if not isinstance(parsed, dict):
        raise _wrong(path, "the file", parsed, "an object with 'data'")
    return parsed


def _each(parent: Mapping[str, Any], key: str, path: Path, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    values = parent.get(key)
    place = key if where == "the file" else f"{where}.{key}"
    if not isinstance(values, list):
        raise _wrong(path, place, values, "a list")
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise _wrong(path, f"{place}[{number}]", value, "an object")
        yield f"{place}[{number}]", value


def _text(parent: Mapping[str, Any], key: str, path: Path, where: str) -> str:
    value = parent.get(key)
    if not isinstance(value, str):
        raise _wrong(path, f"{where}.{key}", value, "a string")
    return value


def _start(answer: Mapping[str, Any], length: int, path: Path, where: str) -> int:
    value = answer.get("answer_start")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= length:
        raise _wrong(path, f"{where}.answer_start", value, f"an integer from 0 to {length}, the passage's length")
    return value


def _wrong(path: Path, where: str, value: Any, wanted: str) -> InputError:
    return InputError(f"found {excerpt(value)} at {where}, wanted {wanted}: it is not SQuAD's layout.", path)
