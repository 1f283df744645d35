"""Scan all lines of a dataset directory and list every problem, not only the first."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data.beir import JUDGEMENTS
from gnnretrieval.data.dataset import CORPUS, QUERIES, split_files
from gnnretrieval.data.faults import (
    UNJUDGEABLE,
    Fault,
    contradiction,
    faults_of,
    judgement_of,
    no_judgements,
    no_records,
    object_of,
    repeated_id,
    unknown_id,
)
from gnnretrieval.data.id_register import IdRegister
from gnnretrieval.data.inspection.problems import LINES, Problem, Problems
from gnnretrieval.data.inspection.spoilt_text import spoilt
from gnnretrieval.data.lines import MARK, UTF_16, decoded, raw_lines
from gnnretrieval.data.records import Qrel
from gnnretrieval.errors import InputError
from gnnretrieval.pages.reports import Figures

_ID = re.compile(r'"_id"\s*:\s*("(?:[^"\\]|\\.)*")')
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = Fault(
    "byte order mark", "the file begins with U+FEFF, which other tools read as text: save it without this mark."
)
_WINDOWS_LINE_END = Fault(
    "Windows line ends", "the line ends in CR LF, and other tools keep the CR: save the file with LF."
)


class _Findings(NamedTuple):
    problems: Problems
    files: dict[str, dict[str, int]]  # the fields of FileFigures


class FileFigures(Figures):
    """A file of a dataset."""

    bytes: int
    lines: int
    """Lines that are not blank."""
    gzipped: bool
    byte_order_mark: bool
    windows_line_ends: int
    """Lines that end in CR LF."""
    not_ascii: int
    """Lines with a character beyond ASCII."""


class Scan(NamedTuple):
    """Result of a scan of the raw files.

    Attributes:
        problems: The problems, errors first, then in order of appearance.
        files: Figures by path in the directory.
    """

    problems: list[Problem]
    files: dict[str, FileFigures]

    @property
    def errors(self) -> int:
        """Number of errors in lines and files."""
        return sum(problem.count for problem in self.problems if problem.is_error)


def scan_files(path: str | Path, qrels: str = "qrels") -> Scan:
    """Read every line of a dataset directory and list the problems.

    Each reason for which :meth:`Dataset.open <gnnretrieval.data.dataset.Dataset.open>` would refuse the files is an
    error here, in the same words. Memory holds an :class:`~gnnretrieval.data.id_register.IdRegister` of the ids, and
    the judgements of one split at a time.

    Args:
        path: The directory.
        qrels: Name of the folder of judgements.
    """
    path, findings = Path(path), _Findings(Problems(), {})
    passages = _scan_records(path, CORPUS, "passage", findings)
    queries = _scan_records(path, QUERIES, "query", findings)
    try:
        files = split_files(path, qrels)
    except InputError as error:
        findings.problems.add(f"{qrels}/", None, Fault("no judgements", error.says))
        files = {}
    for file in files.values():
        _scan_judgements(path, f"{qrels}/{file.name}", queries, passages, findings)
    return Scan(
        findings.problems.listed(),
        {name: FileFigures.model_validate(fields) for name, fields in findings.files.items()},
    )


def _lines(path: Path, name: str, wanted: str, findings: _Findings) -> Iterator[tuple[int, str, Fault | None]]:
    """Number, text and fault of each line that is not blank; with a fault, the text is what can be decoded.

    Raises:
        InputError: the file cannot be read to its end.
    """
    figures = {"bytes": 0, "lines": 0, "gzipped": False, "byte_order_mark": False}
    figures |= {"windows_line_ends": 0, "not_ascii": 0}
    for number, raw in raw_lines(path / name, wanted, keep_mark=True):
        if number == 1:
            with (path / name).open("rb") as file:
                figures |= {"bytes": (path / name).stat().st_size, "gzipped": file.read(2) == _GZIP}
            findings.files[name] = figures
            if raw.startswith(UTF_16):
                decoded(path / name, number, raw)  # raises: UTF-16 has no lines to scan
            if raw.startswith(MARK):
                raw = raw.removeprefix(MARK)
                figures["byte_order_mark"] = True
                findings.problems.add(name, 1, _BYTE_ORDER_MARK)
        if raw.endswith(b"\r\n"):
            figures["windows_line_ends"] += 1
            findings.problems.add(name, number, _WINDOWS_LINE_END)
        figures["not_ascii"] += not raw.isascii()
        try:
            line, fault = decoded(path / name, number, raw), None
        except InputError as error:
            line, fault = raw.decode("utf-8", "replace"), Fault("not UTF-8", error.says)
        line = line.rstrip("\r\n")
        if line and not line.isspace():
            figures["lines"] += 1
            yield number, line, fault


def _unreadable(path: Path, error: InputError) -> Fault:
    """The fault of a file that cannot be read to its end."""
    return Fault("cannot be read" if path.exists() else "no such file", error.says)


def _scan_records(path: Path, name: str, what: str, findings: _Findings) -> IdRegister | None:
    """Scan a file of passages or queries; returns its ids, or None where it cannot be read to its end."""
    ids, count, repeats, repeated = IdRegister(), 0, 0, list[tuple[int, str]]()
    try:
        for number, line, fault in _lines(path, name, f"one {what} per line, as JSON", findings):
            count += 1
            record = fault or object_of(line, what)
            if isinstance(record, Fault):
                findings.problems.add(name, number, record)
                if id_ := _saved_id(line):  # so that its judgements are no errors
                    ids.add(id_)
                continue
            for fault in (*faults_of(record, what), *_notices(record, what)):
                findings.problems.add(name, number, fault)
            id_ = record.get("_id")
            if isinstance(id_, str) and not ids.add(id_):
                repeats += 1
                if repeats <= LINES:
                    repeated.append((number, id_))
        if not count:
            findings.problems.add(name, None, no_records(what))
    except InputError as error:
        findings.problems.add(name, error.line, _unreadable(path / name, error))
        return None
    # First lines are read again: their numbers are not kept, for memory, and are needed only for the listed repeats.
    first = _first_lines(path / name, {id_ for _, id_ in repeated}) if repeated else {}
    for number, id_ in repeated:
        unnamed = repeats - len(repeated) if (number, id_) == repeated[-1] else 0
        findings.problems.add(name, number, repeated_id(what, id_, first.get(id_, number)), 1 + unnamed)
    return ids


def _saved_id(line: str) -> str | None:
    """The id on a line that is not JSON, if it can be found."""
    place = _ID.search(line)
    try:
        id_ = str(json.loads(place[1])) if place else None
    except ValueError:
        return None
    return id_ if id_ and id_.isprintable() else None  # half a character is no id


def _first_lines(path: Path, ids: Container[str]) -> dict[str, int]:
    """The first line of each of a few ids."""
    first: dict[str, int] = {}
    for number, raw in raw_lines(path, ""):
        line = raw.decode("utf-8", "replace")
        record = object_of(line, "")
        id_ = _saved_id(line) if isinstance(record, Fault) else record.get("_id")
        if isinstance(id_, str) and id_ in ids:
            first.setdefault(id_, number)
    return first


def _notices(record: dict[str, Any], what: str) -> Iterator[Fault]:
    """Notices for a record that is accepted but looks wrong, one per kind."""
    id_, title, text = record.get("_id"), record.get("title"), record.get("text")
    if isinstance(id_, str) and id_.split() not in ([], [id_]) and not UNJUDGEABLE.search(id_):
        yield Fault("white space in an id", f"{what} id {id_!r} cannot be written to a TREC run: rename it.")
    kinds = set()
    for part in (title, text):
        for fault in spoilt(part) if isinstance(part, str) else ():
            if fault.kind not in kinds:
                kinds.add(fault.kind)
                yield fault
    if what == "passage" and isinstance(title, str) and title.strip() and isinstance(text, str) and not text.strip():
        yield Fault("no text", f"passage {id_!r} has only a title, {title[:60]!r}: was its text lost?")


def _scan_judgements(
    path: Path, name: str, queries: IdRegister | None, passages: IdRegister | None, findings: _Findings
) -> None:
    scores: dict[str, dict[str, int]] = {}
    contradictions, clashes = 0, list[tuple[int, Qrel, int]]()
    is_first, is_empty = True, True
    try:
        for number, line, fault in _lines(path, name, JUDGEMENTS, findings):
            qrel = fault or judgement_of(line, is_first)
            is_first = False
            if qrel is None:
                continue
            is_empty = False
            if isinstance(qrel, Fault):
                findings.problems.add(name, number, qrel)
                continue
            for what, id_, known in (("query", qrel.query_id, queries), ("passage", qrel.passage_id, passages)):
                if known is not None and id_ not in known:
                    findings.problems.add(name, number, unknown_id(what, id_))
            judged = scores.setdefault(qrel.query_id, {})
            score = judged.get(qrel.passage_id)
            if score is None:
                judged[qrel.passage_id] = qrel.relevance
            elif score != qrel.relevance:
                contradictions += 1
                if contradictions <= LINES:
                    clashes.append((number, qrel, score))
            else:
                pair = f"query {qrel.query_id!r} and passage {qrel.passage_id!r}"
                findings.problems.add(
                    name,
                    number,
                    Fault("repeated judgement", f"{pair} are judged on an earlier line: delete this line."),
                )
        if is_empty:
            findings.problems.add(name, None, no_judgements())
    except InputError as error:
        findings.problems.add(name, error.line, _unreadable(path / name, error))
        return
    first = _first_judgements(path / name, {qrel[:2] for _, qrel, _ in clashes}) if clashes else {}
    for number, qrel, score in clashes:
        unnamed = contradictions - len(clashes) if number == clashes[-1][0] else 0
        findings.problems.add(name, number, contradiction(qrel, score, first.get(qrel[:2], number)), 1 + unnamed)


def _first_judgements(path: Path, pairs: Container[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The first line of each of a few judged pairs."""
    first: dict[tuple[str, str], int] = {}
    for number, raw in raw_lines(path, ""):
        qrel = judgement_of(raw.decode("utf-8", "replace").rstrip("\r\n"), is_first=False)
        if isinstance(qrel, Qrel) and qrel[:2] in pairs:
            first.setdefault(qrel[:2], number)
    return first
