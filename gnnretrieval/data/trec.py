"""TREC runs, and the one order of the project (law 1).

A ranking is ordered by score, highest first, and equal scores by passage id, highest first, byte by byte: the order in
which trec_eval sees a run. trec_eval holds scores in float32, so two scores that differ only beyond float32 are equal
to it; here they are rounded to float32 before they are compared, and the rounded score is what every ranking carries.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress

Run = dict[str, list[ScoredPassage]]

COLUMNS = "query id, Q0, passage id, rank, score, tag"
WRONG_COLUMNS = {
    3: "Three columns are an MS MARCO ranking: convert it first.",
    4: "Four columns are qrels: give the run here and the qrels in their own place.",
}
# What a reader would split at, cut off, drop as a byte order mark or refuse as UTF-8.
UNWRITABLE = re.compile(r"[\s\x00\ufeff\ud800-\udfff]")
LARGE_FILE = 64 * 2**20  # bytes; smaller ones are read in under two seconds
LARGE_RUN = 1_000_000  # lines


def rank(scored: Iterable[ScoredPassage]) -> list[ScoredPassage]:
    """The passages of one query in the project's one order, with their scores rounded to float32.

    Raises:
        InputError: a score is NaN, or a passage is there twice.
    """
    passages = list(scored)
    return _ranked([passage.passage_id for passage in passages], [passage.score for passage in passages])


def rank_rows(
    rows: npt.NDArray[np.integer], scores: npt.NDArray[np.floating], passage_ids: Sequence[str]
) -> list[list[ScoredPassage]]:
    """One ranking a query, from what an index search returns.

    Args:
        rows: Passage rows, ``(q, k)``; a negative one (FAISS's "nothing more found") is left out.
        scores: Their scores, ``(q, k)``.
        passage_ids: Passage id by row.

    Raises:
        InputError: as :func:`rank`.
    """
    rankings = []
    for query_rows, query_scores in zip(rows, scores, strict=True):
        found = query_rows >= 0
        rankings.append(_ranked([passage_ids[row] for row in query_rows[found].tolist()], query_scores[found]))
    return rankings


def _ranked(passage_ids: list[str], scores: npt.ArrayLike) -> list[ScoredPassage]:
    with np.errstate(over="ignore"):  # beyond float32 is infinite to trec_eval as well
        rounded = np.asarray(scores, dtype=np.float64).astype(np.float32)
    if np.isnan(rounded).any():
        raise InputError(
            f"passage {passage_ids[int(np.isnan(rounded).argmax())]!r} has score NaN: it cannot be ranked."
        )
    if len(set(passage_ids)) < len(passage_ids):
        twice = next(passage for n, passage in enumerate(passage_ids) if passage in passage_ids[:n])
        raise InputError(f"passage {twice!r} is twice in one ranking: keep its best score.")
    # Strings compare by code point, which for UTF-8 is trec_eval's strcmp order.
    ordered = sorted(zip(rounded.tolist(), passage_ids, strict=True), reverse=True)
    return [ScoredPassage(passage_id, score) for score, passage_id in ordered]


def write_run(path: str | Path, run: Mapping[str, Iterable[ScoredPassage]], tag: str) -> None:
    """Write ``run`` to ``path`` in TREC format, ranked; gzipped where the name ends in ``.gz``.

    The file appears in one step, or not at all. Scores have the nine digits that name a float32: read back they are
    the same float32 in the same order. A query with no results leaves no line: to every measure it counts zero anyway.

    Args:
        path: The file; one that is there is replaced.
        run: Passages by query id, in any order.
        tag: Name of the system, the last column.

    Raises:
        InputError: an id or the tag is empty or contains whitespace (TREC columns are separated by it), a score is
            NaN, a passage is twice in a ranking, or there is nothing to write.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(partial.open("wb"))
            # No name and no time in the gzip header: the same run is the same bytes.
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if path.suffix == ".gz" else raw
            written = 0
            for block in _blocks(path, run, tag):
                written += file.write(block)
        if not written:
            raise InputError(f"nothing to write: none of the {len(run)} queries of the run has a result.", path)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _blocks(path: Path, run: Mapping[str, Iterable[ScoredPassage]], tag: str) -> Iterator[bytes]:
    """The lines of each query."""
    _check_writable("tag", tag, path)
    rankings = {query_id: list(scored) for query_id, scored in run.items()}
    lines = sum(map(len, rankings.values()))
    with progress(f"writing {path.name}", len(run), "queries") if lines > LARGE_RUN else nullcontext() as meter:
        for query_id, scored in rankings.items():
            _check_writable("query id", query_id, path)
            try:
                ranking = rank(scored)
            except InputError as error:
                raise InputError(f"query {query_id!r}: {error}", path) from None
            for passage in ranking:
                _check_writable("passage id", passage.passage_id, path)
            yield "".join(
                f"{query_id} Q0 {passage_id} {position} {score:.9g} {tag}\n"
                for position, (passage_id, score) in enumerate(ranking, start=1)
            ).encode()
            if meter:
                meter.advance()


def require_writable_ids(ids: Iterable[str], path: Path) -> None:
    """Refuse the ids of ``path`` that no TREC file can hold, before any work is done on them.

    Raises:
        InputError: one is empty, or has white space or characters without a UTF-8 form.
    """
    for id_ in ids:
        _check_writable("id", id_, path)


def _check_writable(what: str, value: str, path: Path) -> None:
    if not value or UNWRITABLE.search(value):
        raise InputError(
            f"{what} {value!r} cannot go into a TREC file, whose columns are separated by whitespace:"
            " it must not be empty, nor contain whitespace or characters without a UTF-8 form. Rename it.",
            path,
        )


def read_run(path: str | Path) -> Run:
    """Read a TREC run: rankings by query id, each in the project's one order whatever its rank column says.

    Plain or gzipped (seen from its content), with either line ending, blank lines or a byte order mark.

    Raises:
        InputError: no such file, not UTF-8, no lines, a wrong number of columns, a score that is no number, or a
            passage that is there twice for one query; with file and line.
    """
    path = Path(path)
    run: dict[str, dict[str, float]] = {}
    number = 0
    try:
        for number, line in enumerate(_lines(path), start=1):
            fields = line.removeprefix(b"\xef\xbb\xbf").split() if number == 1 else line.split()
            if fields:
                query_id, passage_id, score = _parse(fields)
                scores = run.setdefault(query_id, {})
                if passage_id in scores:
                    raise InputError(f"passage {passage_id!r} is there twice for query {query_id!r}: keep one line.")
                scores[passage_id] = score
    except InputError as error:
        raise InputError(str(error), path, number) from None
    except UnicodeDecodeError as error:
        found = error.object[error.start]
        raise InputError(f"byte 0x{found:02x} is not UTF-8: save the run as UTF-8.", path, number) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip data is broken ({error}): copy or download it again.", path, number + 1) from None
    except FileNotFoundError:
        raise InputError("no such file; a TREC run was expected there.", path) from None
    except IsADirectoryError:
        raise InputError("this is a directory; a TREC run file was expected there.", path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); a TREC run was expected there.", path) from None
    if not run:
        raise InputError(f"this run is empty; wanted lines of six columns ({COLUMNS}).", path)
    return {query_id: _ranked(list(scores), list(scores.values())) for query_id, scores in run.items()}


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        lines = gzip.GzipFile(fileobj=raw) if raw.peek(2).startswith(b"\x1f\x8b") else raw
        size = path.stat().st_size
        if size < LARGE_FILE:
            yield from lines
            return
        with progress(f"reading {path.name}", size, "bytes") as meter:
            for number, line in enumerate(lines):
                yield line
                if number % 100_000 == 0:
                    meter.advance(raw.tell() - meter.done)
            meter.advance(size - meter.done)


def _parse(fields: list[bytes]) -> tuple[str, str, float]:
    # Split as bytes: only ASCII whitespace separates, so an id may hold any other character, as in trec_eval.
    query, _, passage, _, number, _ = fields if len(fields) == 6 else [*fields, *[b""] * 6][:6]
    query_id, passage_id = query.decode(), passage.decode()
    if len(fields) != 6:
        hint = WRONG_COLUMNS.get(
            len(fields), "Do ids or the tag contain spaces?" if len(fields) > 6 else "Was it cut off?"
        )
        raise InputError(f"found {len(fields)} columns, wanted six ({COLUMNS}). {hint}")
    try:
        score = float(number) if b"_" not in number else float("nan")
    except ValueError:
        score = float("nan")
    if score != score:
        raise InputError(f"score {number.decode(errors='replace')!r} is not a number: correct or delete this line.")
    return query_id, passage_id, score
