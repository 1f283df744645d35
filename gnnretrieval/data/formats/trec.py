"""Reader of TREC qrels and topics. :mod:`gnnretrieval.data.runs.trec` reads runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gnnretrieval.data.formats.parsed import FileRecord, id_of, relevance_of
from gnnretrieval.data.lines import excerpt, read_lines, require_short
from gnnretrieval.data.records import Qrel, Query
from gnnretrieval.errors import InputError, counted

_BLANK = re.compile(r"[ \t\v\f\r]+")
_TAG = re.compile(r"<(\w+)>\s*(.*)", re.DOTALL)
_ONCE = {"num", "title", "desc", "narr"}  # other tags, such as factors of old topics, may be repeated
CLOSING = re.compile(r"\s*</\w+>\s*$")
LEAD = re.compile(r"^(?:Number|Topic|Description|Narrative)\s*:\s*", re.IGNORECASE)


def read_qrels(path: Path, split: str) -> Iterator[FileRecord]:
    """``topic iteration docno relevance``, separated by white space; by tabs in MS MARCO."""
    for number, line in read_lines(path, "TREC qrels: topic, iteration, document and relevance"):
        fields = _BLANK.split(line.strip(" \t\v\f\r"))  # ASCII white space only, as in trec_eval
        if len(fields) != 4:
            raise InputError(
                f"found {counted(len(fields), 'column')}, wanted four (topic, iteration, document, relevance): "
                f"{excerpt(line)}.",
                path,
                number,
            )
        yield FileRecord(Qrel(fields[0], fields[2], relevance_of(fields[3], path, number)), number)


def read_topics(path: Path, split: str) -> Iterator[FileRecord]:
    """``<top>`` blocks with ``<num>`` and ``<title>``; ``<desc>`` and ``<narr>`` become metadata.

    Lines before the first block and other tags are ignored.
    """
    fields: dict[str, list[str]] = {}
    began: int | None = None
    name, length = "", 0
    for number, line in read_lines(path, "TREC topics: <top> blocks with <num> and <title>"):
        text = line.strip()
        lowered = text.lower()
        if lowered == "<top>":
            if began is not None:
                raise InputError(
                    f"this <top> begins before the one on line {began} has ended: add </top>.", path, number
                )
            fields, began, name, length = {}, number, "", 0
        elif lowered == "</top>":
            if began is None:
                raise InputError("this </top> ends no <top>: delete it.", path, number)
            yield _topic(fields, path, began)
            began = None
        elif lowered.startswith("<top>") if began is None else lowered.endswith("</top>"):
            raise InputError(
                "this line has other text beside <top> or </top>: put the tag on a separate line.", path, number
            )
        elif began is not None:
            length += len(text)
            require_short(path, began, length)
            if tag := _TAG.match(text):
                name, text = tag[1].lower(), tag[2]
                if name in fields and name in _ONCE:
                    raise InputError(
                        f"the topic that begins on line {began} has a second <{name}> here: is a </top> missing?",
                        path,
                        number,
                    )
            fields.setdefault(name, []).append(text)
    if began is not None:
        raise InputError("this <top> does not end: add </top>, or copy the file again.", path, began)


def _topic(fields: dict[str, list[str]], path: Path, line: int) -> FileRecord:
    # A closing tag may be on a later line than its text.
    whole = {name: CLOSING.sub("", " ".join(parts)).strip() for name, parts in fields.items()}
    texts = {name: LEAD.sub("", text).strip() for name, text in whole.items()}
    for name in ("num", "title"):
        if not texts.get(name):
            raise InputError(f"this topic has no <{name}>: add it.", path, line)
    metadata = {key: texts[tag] for tag, key in (("desc", "description"), ("narr", "narrative")) if texts.get(tag)}
    return FileRecord(Query(id_of(texts["num"], "topic", path, line), texts["title"]), line, metadata)
