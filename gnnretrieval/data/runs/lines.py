"""The lines of a run, read in blocks: column by column where a block is sound, line by line where it has a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from gnnretrieval.data.lines import LARGE_FILE, LONGEST_LINE, MARK, require_short, unzipped
from gnnretrieval.data.runs.ranking import Ranking, Run
from gnnretrieval.errors import InputError, counted
from gnnretrieval.progress import progress

COLUMNS = "query id, Q0, passage id, rank, score, tag"
_OF_MSMARCO = "query id, passage id, rank"
_BLOCK = 4 * 2**20  # bytes
_HEADERS = frozenset({b"query-id", b"query_id", b"qid", b"query"})


def blocks_of(path: Path) -> Iterator[bytes]:
    """The lines of a file that may be gzipped, some megabytes together, without a byte order mark."""
    size = path.stat().st_size
    with (
        path.open("rb") as raw,
        progress(f"reading {path.name}", size, "bytes") if size > LARGE_FILE else nullcontext() as meter,
    ):
        file, line, mark = unzipped(raw), 1, MARK
        while block := file.read(_BLOCK):
            rest = file.readline(LONGEST_LINE + 1)
            line += block.count(b"\n")
            require_short(path, line, len(rest))
            yield (block + rest).removeprefix(mark)
            line, mark = line + rest.count(b"\n"), b""
            if meter:
                meter.advance(raw.tell() - meter.done)


class _Layout(NamedTuple):
    """Which column has what; ``score`` is None where only ranks are given."""

    width: int
    passage: int
    rank: int
    score: int | None


_TREC, _WITHOUT_TAG, _MSMARCO = _Layout(6, 2, 3, 4), _Layout(5, 2, 3, 4), _Layout(3, 1, 2, None)


class _Part(NamedTuple):
    """Lines of one query that follow each other.

    Attributes:
        ids: Passage ids, one a line.
        scores: Their scores, ``(n,)``.
        ranks: Their ranks, ``(n,)``; None where these are no whole numbers.
    """

    ids: bytes
    scores: npt.NDArray[np.float64]
    ranks: npt.NDArray[np.int64] | None


class RunLines:
    """Collects the lines of a run; the first line decides the columns of all.

    Args:
        path: The file, for errors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taken = 0
        self._layout: _Layout | None = None
        self._parts: dict[bytes, list[_Part]] = {}

    def take(self, block: bytes) -> None:
        """Add whole lines; only the file's last line may lack its line end.

        Raises:
            InputError: a line has other columns, or a score or a rank that is no number; with the line's number.
        """
        block += b"" if block.endswith(b"\n") else b"\n"
        if self._layout is None:
            lines = enumerate(block.split(b"\n"), self._taken + 1)
            number, first = next(((number, fields) for number, line in lines if (fields := line.split())), (0, []))
            self._layout = self._layout_of(first, number) if first else None
        if self._layout is not None:
            columns = self._columns(block, self._layout) or self._columns(_filled(block), self._layout)
            if columns is None or not self._note(columns, self._layout):
                self._refuse(block, self._layout)
        self._taken += block.count(b"\n")

    def _layout_of(self, first: list[bytes], number: int) -> _Layout:
        if len(first) in (3, 4) and first[0].lower() in _HEADERS:
            raise InputError("this is the header of judgements; wanted a run there.", self.path, number)
        if len(first) == 3:
            return _MSMARCO
        without_tag = len(first) == 5 and first[1].upper() in (b"Q0", b"0") and _numbers(first[4:]) is not None
        return _WITHOUT_TAG if without_tag else _TREC

    def _columns(self, block: bytes, layout: _Layout) -> list[list[bytes]] | None:
        """The columns; None where a line is blank or has another number of them. A lone NUL marks each line end."""
        if b"\0" in block or not _is_utf8(block):
            return None
        fields = block.replace(b"\n", b" \0 ").split()
        count, step = block.count(b"\n"), layout.width + 1
        if len(fields) != step * count or fields[layout.width :: step].count(b"\0") != count:
            return None
        return [fields[column::step] for column in range(layout.width)]

    def _note(self, columns: list[list[bytes]], layout: _Layout) -> bool:
        """Add the lines of columns; False where a score, or the rank in its place, is no number."""
        ranks = _whole_numbers(columns[layout.rank])
        if layout.score is not None:
            scores = _numbers(columns[layout.score])
        else:
            scores = None if ranks is None else -ranks.astype(np.float64)
        if scores is None:
            return False
        queries, ids = columns[0], columns[layout.passage]
        counts = Counter(queries)
        ends = dict(zip(counts, accumulate(counts.values()), strict=True))
        # Most runs have each query's lines together: they are sorted only where they do not.
        if any(queries[end - counts[query] : end].count(query) < counts[query] for query, end in ends.items()):
            place = {query: number for number, query in enumerate(counts)}
            order = sorted(range(len(queries)), key=lambda line: place[queries[line]])
            ids = [ids[line] for line in order]
            scores, ranks = scores[order], None if ranks is None else ranks[order]
        for query, end in ends.items():
            lines = slice(end - counts[query], end)
            part = _Part(b"\n".join(ids[lines]), scores[lines], None if ranks is None else ranks[lines])
            self._parts.setdefault(query, []).append(part)
        return True

    def _refuse(self, block: bytes, layout: _Layout) -> NoReturn:
        """Name the first line of ``block`` that is not sound."""
        for number, line in enumerate(block.split(b"\n"), self._taken + 1):
            fault = _fault(line, layout)
            if fault:
                raise InputError(fault, self.path, number)
        raise AssertionError("a block without a fault was refused")

    def run(self, warn: Callable[[str], None]) -> Run:
        """The rankings of all added lines, which are freed; ``warn`` is told where ranks contradict scores.

        Raises:
            InputError: there are no lines, or a query has a passage twice or, without scores, a rank twice.
        """
        if self._layout is None:
            raise InputError(f"this run is empty; wanted lines of six columns ({COLUMNS}).", self.path)
        run: Run = {}
        otherwise: list[str] = []
        for name in list(self._parts):
            parts = self._parts.pop(name)
            ids = b"\n".join(part.ids for part in parts).decode().split("\n")
            with np.errstate(over="ignore"):  # beyond float32 is infinite
                scores = np.concatenate([part.scores for part in parts]).astype(np.float32)
            given = [part.ranks for part in parts if part.ranks is not None]
            ranks = np.concatenate(given) if len(given) == len(parts) else None
            try:
                ranking = Ranking(ids, scores)
            except InputError:  # scores are numbers: a passage is there twice
                raise self._twice(name, self._layout.passage, "passage") from None
            if self._layout.score is None and len(np.unique(ranking.scores)) < len(ranking):
                raise self._twice(name, self._layout.rank, "rank")
            query_id = name.decode()
            run[query_id] = ranking
            if ranks is not None and _says_otherwise(ranks, scores, ids, ranking):
                otherwise.append(query_id)
        if otherwise:
            warn(
                f"{self.path}: the ranks are in another order than the scores for {len(otherwise):,} of {len(run):,} "
                f"queries, such as {otherwise[0]!r}. The scores decide, and passage ids where they are equal, as in "
                "trec_eval."
            )
        return run

    def _twice(self, query: bytes, column: int, what: str) -> InputError:
        """The error of a repeated passage or rank. Its line is found by reading the file again: lines are not kept."""
        seen: set[bytes] = set()
        number = 0
        for block in blocks_of(self.path):
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                fields = line.split()
                if fields and fields[0] == query:
                    if fields[column] in seen:
                        hint = "keep one line." if what == "passage" else "number them again. Are these judgements?"
                        value = fields[column].decode()
                        shown = repr(value) if what == "passage" else value
                        return InputError(
                            f"{what} {shown} is there twice for query {query.decode()!r}: {hint}", self.path, number
                        )
                    seen.add(fields[column])
        raise AssertionError("nothing is there twice")


def _filled(block: bytes) -> bytes:
    """The lines that are not blank."""
    return b"".join(line + b"\n" for line in block.split(b"\n") if line.strip())


def _says_otherwise(
    ranks: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], ids: list[str], ranking: Ranking
) -> bool:
    """Whether a better rank has a lower score or, where all scores are equal, ranks order passages otherwise."""
    if len(ids) > 1 and scores.min() == scores.max() and len(np.unique(ranks)) == len(ranks):
        return [ids[place] for place in np.argsort(ranks).tolist()] != ranking.ids
    if not (ranks[1:] > ranks[:-1]).all():
        scores = scores[np.lexsort((-scores, ranks))]
    return bool((scores[1:] > scores[:-1]).any())


def _numbers(column: list[bytes]) -> npt.NDArray[np.float64] | None:
    """Scores, or None where one is not a number."""
    try:
        numbers = np.fromiter(map(float, column), np.float64, len(column))
    except ValueError:
        return None
    return None if np.isnan(numbers).any() or b"_" in b"".join(column) else numbers  # Python alone reads 1_000


def _whole_numbers(column: list[bytes]) -> npt.NDArray[np.int64] | None:
    try:
        return np.fromiter(map(int, column), np.int64, len(column))
    except (ValueError, OverflowError):
        return None


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


def _fault(line: bytes, layout: _Layout) -> str | None:
    """What is wrong with a line."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{line[error.start]:02x} is not UTF-8: save the run as UTF-8."
    if b"\0" in line:
        return "there is a NUL byte, which no text has: is this a run?"
    fields = line.split()
    if fields and len(fields) != layout.width:
        wanted = {6: f"six ({COLUMNS})", 5: "five as in the first line", 3: f"three ({_OF_MSMARCO})"}[layout.width]
        hint = "Was it cut off?" if len(fields) < layout.width else "Do ids or the tag contain spaces?"
        if len(fields) == 4:
            hint = "Four columns are qrels: give the run here and the qrels in their own place."
        return f"found {counted(len(fields), 'column')}, wanted {wanted}. {hint}"
    if fields and layout.score is not None and _numbers([fields[layout.score]]) is None:
        return f"score {fields[layout.score].decode()!r} is not a number: correct or delete this line."
    if fields and layout.score is None and _whole_numbers([fields[layout.rank]]) is None:
        return f"rank {fields[layout.rank].decode()!r} is not a whole number; wanted {_OF_MSMARCO}, or six columns."
    return None
