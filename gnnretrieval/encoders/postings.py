"""BM25's postings from a stream of texts: counted block by block, scored, and written term by term.

A *posting* is a term in a passage. Blocks of texts are counted into a spool, each sorted by term; ranges of terms are
then gathered from all blocks, so that neither the texts nor the postings need to fit in memory.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.arrays import ArrayWriter, load_array, save_array
from gnnretrieval.progress import progress

K1, B = 1.5, 0.75
TEXTS = 16384  # texts that are split into words together
_IN_MEMORY = 64 * 2**20  # bytes of the spool that are kept in memory
_RANGE = 2**21  # postings that are scored together: about 150 MiB
_NAMES = {"indptr": "indptr.csc.index.npy", "rows": "indices.csc.index.npy", "scores": "data.csc.index.npy"}

Advance = Callable[[int], None]


class Postings(NamedTuple):
    """Scored postings by term.

    Attributes:
        indptr: ``(V + 1,)`` int64: those of term ``t`` are at ``indptr[t]:indptr[t + 1]``.
        rows: ``(P,)`` int32: their passages, ascending for each term.
        scores: ``(P,)`` float32: the term's share of these passages' BM25 score.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Memory-mapped from the files that :meth:`save` or :meth:`Counts.postings` wrote.

        Raises:
            ArtifactError: one is missing or damaged, or they do not fit one another.
        """
        indptr = load_array(directory / _NAMES["indptr"], (None,), np.int64)
        count = int(indptr[-1]) if len(indptr) else 0
        rows = load_array(directory / _NAMES["rows"], (count,), np.int32)
        scores = load_array(directory / _NAMES["scores"], (count,), np.float32)
        return cls(np.array(indptr), np.asarray(rows), np.asarray(scores))

    def save(self, directory: Path) -> None:
        """Write them in bm25s' layout."""
        for name, array in self._asdict().items():
            save_array(directory / _NAMES[name], array)

    def of(self, terms: Iterable[int]) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Rows and scores of each of ``terms``, without copying."""
        bounds = ((int(self.indptr[term]), int(self.indptr[term + 1])) for term in terms)
        return [(self.rows[start:end], self.scores[start:end]) for start, end in bounds]


class Counts:
    """How often each term is in each passage. A context: the spool is gone when it is left.

    Args:
        directory: Where the spool goes when it is large; not given: the system's place for temporary files.

    Attributes:
        vocabulary: Number by term, in order of first appearance.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.vocabulary: dict[str, int] = {}
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(directory) if directory else None)  # noqa: SIM115
        self._starts: list[tuple[int, int]] = []  # place in the spool and number of postings of each block
        self._lengths: list[NDArray[np.int32]] = []
        self._passages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    @property
    def num_passages(self) -> int:
        """Passages so far."""
        return self._passages

    @property
    def num_postings(self) -> int:
        """Postings so far."""
        return sum(count for _, count in self._starts)

    def add(self, tokens: Any) -> None:
        """Count one block of consecutive passages: ``tokens.ids`` by passage, ``tokens.vocab`` their terms."""
        lengths = np.array([len(ids) for ids in tokens.ids], dtype=np.int32)
        flat = np.fromiter(itertools.chain.from_iterable(tokens.ids), dtype=np.int64, count=int(lengths.sum()))
        names = {number: term for term, number in tokens.vocab.items()}
        numbers, first = np.unique(flat, return_index=True)
        known = np.zeros(len(names), dtype=np.int64)
        for number in numbers[np.argsort(first)].tolist():  # bm25s numbers a block's terms in no repeatable order
            known[number] = self.vocabulary.setdefault(names[number], len(self.vocabulary))
        texts = np.repeat(np.arange(len(lengths)), lengths)
        keys, counts = np.unique(known[flat] * len(lengths) + texts, return_counts=True)  # by term, then by passage
        self._starts.append((self._spool.tell(), len(keys)))
        for column in (keys // max(1, len(lengths)), keys % max(1, len(lengths)) + self._passages, counts):
            self._spool.write(column.astype(np.int32).tobytes())
        self._lengths.append(lengths)
        self._passages += len(lengths)

    def _column(self, block: int, column: int, part: slice) -> NDArray[np.int32]:
        """Terms (0), rows (1) or counts (2) of a part of a block's postings."""
        start, postings = self._starts[block]
        self._spool.seek(start + 4 * (column * postings + part.start))
        return np.frombuffer(self._spool.read(4 * (part.stop - part.start)), dtype=np.int32)

    def _terms(self) -> Iterator[NDArray[np.int32]]:
        return (self._column(block, 0, slice(0, count)) for block, (_, count) in enumerate(self._starts))

    def postings(self, directory: Path | None, advance: Advance = lambda count: None) -> Postings:
        """All postings, scored: in memory, or memory-mapped in ``directory``; ``advance`` gets numbers of postings."""
        size = len(self.vocabulary)
        documents = np.zeros(size, dtype=np.int64)  # passages that hold each term
        for terms in self._terms():
            documents += np.bincount(terms, minlength=size)
        indptr = np.concatenate([[0], np.cumsum(documents)])
        cuts = _ranges(indptr)
        bounds = np.array([np.searchsorted(terms, cuts) for terms in self._terms()]).reshape(-1, len(cuts))
        lengths = np.concatenate([np.zeros(0, dtype=np.int32), *self._lengths])
        idf = np.array([math.log(1 + (self._passages - n + 0.5) / (n + 0.5)) for n in documents.tolist()], np.float32)
        mean = lengths.mean() if len(lengths) else 1.0

        def scored() -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
            for ends in zip(bounds[:, :-1].T.tolist(), bounds[:, 1:].T.tolist(), strict=True):
                parts = [slice(*both) for both in zip(*ends, strict=True)]
                terms, rows, counts = (
                    np.concatenate([self._column(block, column, part) for block, part in enumerate(parts)])
                    for column in range(3)
                )
                order = np.argsort(terms, kind="stable")  # a term's rows are in order already
                terms, rows, counts = terms[order], rows[order], counts[order]
                saturated = counts / (K1 * ((1 - B) + B * lengths[rows] / mean) + counts)  # in float64
                yield rows, (idf[terms] * saturated).astype(np.float32)
                advance(len(rows))

        return _in_memory(indptr, scored()) if directory is None else _on_disk(directory, indptr, scored())


def _in_memory(indptr: NDArray[np.int64], scored: Iterable[tuple[NDArray[np.int32], NDArray[np.float32]]]) -> Postings:
    made = Postings(indptr, np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32))
    done = 0
    for rows, scores in scored:
        part = slice(done, done + len(rows))
        made.rows[part], made.scores[part] = rows, scores
        done += len(rows)
    return made


def _on_disk(
    directory: Path, indptr: NDArray[np.int64], scored: Iterable[tuple[NDArray[np.int32], NDArray[np.float32]]]
) -> Postings:
    shape = (int(indptr[-1]),)
    save_array(directory / _NAMES["indptr"], indptr)
    with (
        ArrayWriter(directory / _NAMES["rows"], shape, np.int32) as all_rows,
        ArrayWriter(directory / _NAMES["scores"], shape, np.float32) as all_scores,
    ):
        for rows, scores in scored:
            all_rows.write(rows)
            all_scores.write(scores)
    return Postings.open(directory)


def _ranges(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bounds of ranges of terms with about ``_RANGE`` postings each, from 0 to ``V``."""
    marks = np.arange(_RANGE, int(indptr[-1]), _RANGE)
    return np.unique(np.concatenate([[0], np.searchsorted(indptr, marks), [len(indptr) - 1]]))


def count_texts(texts: Iterable[str], words: Callable[[list[str]], Any], counts: Counts, total: int) -> None:
    """Count ``texts``, split by ``words``, into ``counts``."""
    stream = iter(texts)
    with progress("BM25: counting words", total, "passages") as meter:
        while block := list(itertools.islice(stream, TEXTS)):
            counts.add(words(block))
            meter.advance(len(block))
