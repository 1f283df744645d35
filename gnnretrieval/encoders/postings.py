"""BM25's postings from a stream of texts: counted block by block, scored, and written term by term.

A *posting* is a term in a passage. Blocks of texts are counted into a temporary file, the spool, each block sorted by
term. Ranges of terms are then gathered from all blocks, so that neither texts nor postings need to fit in memory. A
passage may have several *fields*, such as its text and its queries. They are counted once, and can be scored many times
with different weights.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.progress import progress
from gnnretrieval.storage.array_checks import require_offsets
from gnnretrieval.storage.arrays import ArrayWriter, load_array, save_array

K1, B = 1.5, 0.75
TEXTS = 16384  # texts split into words at a time
_IN_MEMORY = 64 * 2**20  # maximum bytes of a spool in memory
_RANGE = 2**21  # postings scored at a time: about 150 MiB
_NAMES = {"indptr": "indptr.csc.index.npy", "rows": "indices.csc.index.npy", "scores": "data.csc.index.npy"}

Advance = Callable[[int], None]
Weighted = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]


class Postings(NamedTuple):
    """Scored postings by term.

    Attributes:
        indptr: ``(V + 1,)`` int64; term ``t`` has the postings ``indptr[t]:indptr[t + 1]``.
        rows: ``(P,)`` int32 passage of each posting, ascending for each term.
        scores: ``(P,)`` float32 contribution of the term to the passage's BM25 score.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the files of :meth:`save` or :meth:`Counts.postings`; rows and scores are memory-mapped.

        Raises:
            ArtifactError: A file is missing or damaged, or the files do not fit together.
        """
        indptr = load_array(directory / _NAMES["indptr"], (None,), np.int64)
        count = int(indptr[-1]) if len(indptr) else 0
        rows = load_array(directory / _NAMES["rows"], (count,), np.int32)
        scores = load_array(directory / _NAMES["scores"], (count,), np.float32)
        require_offsets(indptr, count, directory / _NAMES["indptr"])
        return cls(np.array(indptr), np.asarray(rows), np.asarray(scores))

    def save(self, directory: Path) -> None:
        """Write the postings to ``directory`` in bm25s' layout."""
        for name, array in self._asdict().items():
            save_array(directory / _NAMES[name], array)

    def of(self, terms: Iterable[int]) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Views of the rows and scores of each of ``terms``."""
        bounds = ((int(self.indptr[term]), int(self.indptr[term + 1])) for term in terms)
        return [(self.rows[start:end], self.scores[start:end]) for start, end in bounds]


class Counts:
    """Count of each term in each field of each passage; a context manager that deletes its spool at the end.

    Args:
        directory: Directory of the spool when it is large; None: the system's directory for temporary files.
        fields: Number of fields per passage.

    Attributes:
        vocabulary: Number of each term, in order of first appearance.
    """

    def __init__(self, directory: Path | None = None, fields: int = 1) -> None:
        self.vocabulary: dict[str, int] = {}
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(directory) if directory else None)  # noqa: SIM115
        self._starts: list[tuple[int, int]] = []  # offset in the spool and number of postings of each block
        self._lengths: list[NDArray[np.int32]] = []  # (fields, block)
        self._fields, self._passages = fields, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    @property
    def num_passages(self) -> int:
        """Number of passages so far."""
        return self._passages

    @property
    def num_postings(self) -> int:
        """Number of postings so far."""
        return sum(count for _, count in self._starts)

    def add(self, *fields: Any) -> None:
        """Count a block of consecutive passages, given bm25s' tokens of each field (``ids`` by passage, ``vocab``)."""
        lengths = np.array([[len(ids) for ids in tokens.ids] for tokens in fields], dtype=np.int32)  # (fields, block)
        size = max(1, lengths.shape[1])
        counted = [self._counted(tokens, of_field, size) for tokens, of_field in zip(fields, lengths, strict=True)]
        keys = np.unique(np.concatenate([keys for keys, _ in counted])) if len(counted) > 1 else counted[0][0]
        counts = np.zeros((len(fields), len(keys)), dtype=np.int32)
        for row, (keys_of_field, counts_of_field) in zip(counts, counted, strict=True):
            row[np.searchsorted(keys, keys_of_field)] = counts_of_field
        self._starts.append((self._spool.tell(), len(keys)))
        for column in (keys // size, keys % size + self._passages, *counts):
            self._spool.write(column.astype(np.int32).tobytes())
        self._lengths.append(lengths)
        self._passages += lengths.shape[1]

    def _counted(
        self, tokens: Any, lengths: NDArray[np.int32], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys ``term * size + place in the block`` of one field, ascending, with their counts."""
        flat = np.fromiter(itertools.chain.from_iterable(tokens.ids), dtype=np.int64, count=int(lengths.sum()))
        names = {number: term for term, number in tokens.vocab.items()}
        numbers, first = np.unique(flat, return_index=True)
        known = np.zeros(len(names), dtype=np.int64)
        for number in numbers[np.argsort(first)].tolist():  # bm25s' order of a block's terms is not reproducible
            known[number] = self.vocabulary.setdefault(names[number], len(self.vocabulary))
        return np.unique(known[flat] * size + np.repeat(np.arange(len(lengths)), lengths), return_counts=True)

    def _column(self, block: int, column: int, part: slice) -> NDArray[np.int32]:
        """A column of a part of a block's postings: terms (0), rows (1) or counts of field ``f`` (2 + f)."""
        start, postings = self._starts[block]
        self._spool.seek(start + 4 * (column * postings + part.start))
        return np.frombuffer(self._spool.read(4 * (part.stop - part.start)), dtype=np.int32)

    def _weighted(self, block: int, part: slice, weights: Sequence[float]) -> Weighted:
        """Terms, rows and weighted counts of a part of a block's postings, without those that a weight of 0 removes."""
        terms, rows = (self._column(block, column, part) for column in range(2))
        counts = np.zeros(len(terms))
        for field, weight in enumerate(weights):
            if weight:
                counts += weight * self._column(block, 2 + field, part)
        kept = slice(None) if all(weights) else counts > 0
        return terms[kept], rows[kept], counts[kept]

    def postings(
        self,
        directory: Path | None,
        advance: Advance = lambda count: None,
        *,
        k1: float = K1,
        b: float = B,
        weights: Sequence[float] | None = None,
    ) -> Postings:
        """All postings, scored by BM25; can be called again with other arguments.

        Args:
            directory: Where they are written and memory-mapped; None: they are made in memory.
            advance: Called with the number of postings scored since the last call.
            k1: How late a term's count saturates, 0 or more.
            b: Weight of a passage's length, 0 to 1.
            weights: ``w_f`` of each field: a term's count is ``Σ_f w_f f_{t,f}``; None: 1 each.
        """
        weights = [1.0] * self._fields if weights is None else weights
        size, blocks = len(self.vocabulary), range(len(self._starts))
        documents = np.zeros(size, dtype=np.int64)  # number of passages with each term
        for block in blocks:
            documents += np.bincount(self._weighted(block, self._whole(block), weights)[0], minlength=size)
        indptr = np.concatenate([[0], np.cumsum(documents)])
        # A block is sorted by term, so each range of terms is one part of it.
        cuts = _ranges(indptr)
        terms_of = (self._column(block, 0, self._whole(block)) for block in blocks)
        bounds = np.array([np.searchsorted(terms, cuts) for terms in terms_of]).reshape(-1, len(cuts))
        lengths = np.concatenate([np.zeros((self._fields, 0), dtype=np.int32), *self._lengths], axis=1)
        lengths = np.asarray(weights) @ lengths  # (m,)
        idf = np.array([math.log(1 + (self._passages - n + 0.5) / (n + 0.5)) for n in documents.tolist()], np.float32)
        mean = lengths.mean() if len(lengths) else 1.0

        def scored() -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
            for ends in zip(bounds[:, :-1].T.tolist(), bounds[:, 1:].T.tolist(), strict=True):
                parts = enumerate(slice(*both) for both in zip(*ends, strict=True))
                pieces = zip(*(self._weighted(block, part, weights) for block, part in parts), strict=True)
                terms, rows, counts = (np.concatenate(piece) for piece in pieces)
                order = np.argsort(terms, kind="stable")  # stable, because a term's rows are already in order
                terms, rows, counts = terms[order], rows[order], counts[order]
                saturated = counts / (k1 * ((1 - b) + b * lengths[rows] / mean) + counts)  # in float64
                yield rows, (idf[terms] * saturated).astype(np.float32)
                advance(len(rows))

        return _in_memory(indptr, scored()) if directory is None else _on_disk(directory, indptr, scored())

    def _whole(self, block: int) -> slice:
        return slice(0, self._starts[block][1])


def _in_memory(indptr: NDArray[np.int64], scored: Iterable[tuple[NDArray[np.int32], NDArray[np.float32]]]) -> Postings:
    postings = Postings(indptr, np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32))
    done = 0
    for rows, scores in scored:
        part = slice(done, done + len(rows))
        postings.rows[part], postings.scores[part] = rows, scores
        done += len(rows)
    return postings


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


def count_texts(fields: Sequence[Iterable[str]], words: Callable[[list[str]], Any], counts: Counts, total: int) -> None:
    """Count texts, tokenized by ``words``, into ``counts``; each of ``fields`` has one text per passage."""
    passages = zip(*fields, strict=True)
    with progress("BM25: counting words", total, "passages") as meter:
        while block := list(itertools.islice(passages, TEXTS)):
            counts.add(*(words(list(texts)) for texts in zip(*block, strict=True)))
            meter.advance(len(block))
