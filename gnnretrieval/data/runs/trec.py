"""TREC runs: written here, read by :mod:`.reader`, in the one order of :mod:`.ranking` (law 1)."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.ranking import Ranking, Run, rank, rank_rows, ranked_ids
from gnnretrieval.data.runs.reader import read_run
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress
from gnnretrieval.storage.artifacts import whole_file

__all__ = ["Ranking", "Run", "rank", "rank_rows", "ranked_ids", "read_run", "require_writable_ids", "write_run"]

# What a reader would split at, cut off, drop as a byte order mark or refuse as UTF-8.
UNWRITABLE = re.compile(r"[\s\x00\ufeff\ud800-\udfff]")
LARGE_RUN = 1_000_000  # lines


def write_run(
    path: str | Path, run: Mapping[str, Iterable[ScoredPassage]], tag: str, *, may_be_empty: bool = False
) -> None:
    """Write ``run`` to ``path`` in TREC format, ranked; gzipped where the name ends in ``.gz``.

    The file appears in one step, or not at all. Scores have the nine digits that name a float32: read back they are
    the same float32 in the same order. A query with no results leaves no line: to every measure it counts zero anyway.

    Args:
        path: The file; an existing one is replaced.
        run: Passages by query id, in any order.
        tag: Name of the system, the last column.
        may_be_empty: Write an empty file if no query has a result: BM25 may share no word with any question.

    Raises:
        InputError: an id or the tag is empty or contains whitespace (TREC columns are separated by it), a score is
            NaN, a passage is twice in a ranking, or there is nothing to write.
    """
    path = Path(path)
    with whole_file(path) as partial:
        with ExitStack() as stack:
            raw = stack.enter_context(partial.open("wb"))
            # No name and no time in the gzip header: the same run is the same bytes.
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if path.suffix == ".gz" else raw
            written = 0
            for block in _blocks(path, run, tag):
                written += file.write(block)
        if not written and not may_be_empty:
            raise InputError(f"nothing to write: none of the {len(run)} queries of the run has a result.", path)


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


def are_writable(ids: Iterable[str]) -> bool:
    """Whether a TREC file can hold all these ids (:func:`require_writable_ids`)."""
    return all(id_ and not UNWRITABLE.search(id_) for id_ in ids)


def _check_writable(what: str, value: str, path: Path) -> None:
    if not value or UNWRITABLE.search(value):
        raise InputError(
            f"{what} {value!r} cannot go into a TREC file, whose columns are separated by whitespace:"
            " it must not be empty, nor contain whitespace or characters without a UTF-8 form. Rename it.",
            path,
        )
