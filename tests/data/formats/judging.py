"""What import does with a mutated file, against what the documentation says of it."""

from __future__ import annotations

import json
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnretrieval.data.formats.recognise import FORMATS
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.runs.trec import read_run
from gnnretrieval.data.sources import Source
from gnnretrieval.errors import GnnRetrievalError, InputError
from tests.data.formats import reference
from tests.data.formats.mutations import Case
from tests.data.formats.reference import Refused

SECONDS = 20
FINE = ("accepted, with what is in it", "refused, with file and place")


class Hangs(Exception):
    """It took too long."""


def judged(case: Case, directory: Path, alone: bool = False) -> str:
    """The outcome, one of ``FINE`` or what went wrong.

    Args:
        case: The mutated file and those beside it.
        directory: An empty directory to work in.
        alone: Read the file and import nothing, which is five times as fast and sees nothing that goes wrong between
            files, such as an id that comes again.
    """
    if alone and case.file.format != "trec-run":
        case = case._replace(beside=[], wanted="either", line=None)
    files = [case.file, *case.beside]
    for file in files:
        (directory / file.name).write_bytes(file.data)
    expected = by_reference(case, alone)
    if (case.wanted == "accepted" and expected is None) or (case.wanted == "refused" and expected is not None):
        return f"the reference is wrong: this must be {case.wanted}"
    try:
        with time_limit():
            found = read(case, directory) if alone else imported(case, directory)
    except Hangs:
        return "hang"
    except GnnRetrievalError as error:
        if expected is not None:
            return f"refused what can be read: {error}"
        return refusal(case, error, directory)
    except Exception:
        return "traceback: " + traceback.format_exc()
    if expected is None:
        return "wrong success"
    return FINE[0] if found == expected else f"wrong content: {found}, wanted {expected}"[:2000]


def by_reference(case: Case, alone: bool) -> Any:
    """What the files hold; None where they must be refused."""
    try:
        if case.file.format == "trec-run":
            return reference.run(case.file.data)
        if alone:
            return [(one.values, dict(one.metadata)) for one in reference.read(case.file)]
        return reference.dataset([case.file, *case.beside])
    except Refused:
        return None


def read(case: Case, directory: Path) -> Any:
    """The records of the file, as :func:`reference.read` gives them."""
    path = directory / case.file.name
    if case.file.format == "trec-run":
        return imported(case, directory)
    return [(tuple(one.record), dict(one.metadata)) for one in FORMATS[case.file.format].read(path, case.file.split)]


def imported(case: Case, directory: Path) -> Any:
    if case.file.format == "trec-run":
        return {q: [tuple(one) for one in ranking] for q, ranking in read_run(directory / case.file.name).items()}
    sources = [Source(directory / file.name, file.format, file.split) for file in [case.file, *case.beside]]
    return contents(import_dataset(sources, directory / "out").path)


def contents(dataset: Path) -> dict[str, Any]:
    """A dataset directory, as :func:`reference.dataset` gives it."""

    def records(name: str, *keys: str) -> list[tuple]:
        rows = (dataset / name).read_bytes().decode().split("\n")[:-1]
        found = [json.loads(row) for row in rows]
        return [(*(one[key] for key in keys), one.get("metadata", {})) for one in found]

    def rows(folder: str, skip: int) -> dict[str, list[list[str]]]:
        return {
            file.stem: [row.split("\t") for row in file.read_bytes().decode().split("\n")[skip:-1]]
            for file in (dataset / folder).glob("*.tsv")
        }

    return {
        "passages": records("corpus.jsonl", "_id", "title", "text"),
        "queries": records("queries.jsonl", "_id", "text"),
        "judgements": {split: [(q, p, int(r)) for q, p, r in of] for split, of in rows("qrels", 1).items()},
        "negatives": {split: [tuple(row) for row in of] for split, of in rows("negatives", 0).items()},
    }


def refusal(case: Case, error: GnnRetrievalError, directory: Path) -> str:
    """Whether a refusal names the file and the place, and leaves nothing behind."""
    message = str(error)
    if (directory / "out").exists():
        return f"half a dataset was left: {message}"
    names = [file.name for file in [case.file, *case.beside]]
    if not isinstance(error, InputError) or not any(name in message for name in names):
        return f"no file in the message: {message}"
    if "\n" in message:
        return f"not one line: {message}"
    if case.line is not None and error.line != case.line:
        return f"line {error.line} is named, and it is on line {case.line}: {message}"
    data = case.file.data
    blank = not data.strip(b"\xef\xbb\xbf \r\n\t\x0b\x0c") or "is empty" in message
    without_lines = case.file.name.endswith(".parquet") or "none of these files" in message
    without_lines |= case.file.format == "squad" and "nested too deeply" in message
    without_lines |= "{query id: {passage id: score}}" in message  # a run as JSON is named by query and passage
    if error.line is None and not blank and not without_lines and "data" not in message:
        return f"no line in the message: {message}"
    return FINE[1]


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
