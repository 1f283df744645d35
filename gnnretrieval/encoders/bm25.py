"""BM25 with an English stemmer and stop words: the lexical baseline and an edge feature."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from gnnretrieval.encoders.postings import K1, TEXTS, Advance, B, Counts, Postings, count_texts
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, release
from gnnretrieval.storage.provenance import write_json

_VOCABULARY, _PARAMETERS = "vocab.index.json", "params.index.json"

Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class BM25:
    r"""Lucene's BM25, every score computed when it is built (bm25s, Lù 2024); words are split and stemmed by bm25s.

    .. math::
        s(q, p) = \sum_{t \in q} \ln\Bigl(1 + \frac{m - n_t + 0.5}{n_t + 0.5}\Bigr)
        \frac{f_{t,p}}{f_{t,p} + k_1 (1 - b + b\, |p| / \overline{|p|})}

    with :math:`n_t` passages that hold the term :math:`t`, :math:`f_{t,p}` times in :math:`p`. A query goes through the
    postings of its own terms, and no other passage.

    Memory: 8 bytes a posting (a term in a passage) when built in memory; none when built into a ``directory`` or opened
    from one. About 200 bytes a distinct term. 4 bytes a passage while it answers. Building takes 12 bytes a posting of
    temporary file (the first 64 MiB in memory), about 100 MiB of working memory, and 4 bytes a passage.

    Not for several threads at once: they would share the sums of a query.

    Args:
        texts: The passages' texts, title included, in row order. Read once, in blocks.
        k1: How late a term's count saturates, 0 or more.
        b: How much a passage's length counts, 0 to 1.
        total: How many there are, for the progress bar; not needed where ``texts`` has a length.
        directory: Where the index is written (see :meth:`save`) and memory-mapped; not given: it is built in memory.

    Raises:
        InputError: ``k1`` or ``b`` is out of its range.
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        k1: float = K1,
        b: float = B,
        total: int | None = None,
        directory: str | Path | None = None,
    ) -> None:
        _require_range(k1, b)
        if total is None:
            total = len(texts) if isinstance(texts, Sequence) else 0
        place = _made(directory)
        with Counts(place) as counts:
            count_words(counts, texts, total=total)
            with progress("BM25: scoring words", counts.num_postings, "postings") as meter:
                self._score(counts, None, k1, b, place, meter.advance)

    @classmethod
    def of_counts(
        cls,
        counts: Counts,
        weights: Sequence[float] | None = None,
        *,
        k1: float = K1,
        b: float = B,
        directory: str | Path | None = None,
    ) -> Self:
        """Passages of several fields, whose words :func:`count_words` counted, each field with a weight.

        Args:
            counts: May be used again afterwards.
            weights: One a field: a term counts ``Σ_f w_f f_{t,f}`` times, and so does the length; None: 1 each.
            k1: As of the class.
            b: As of the class.
            directory: As of the class.

        Raises:
            InputError: ``k1`` or ``b`` is out of its range.
        """
        _require_range(k1, b)
        self = cls.__new__(cls)
        self._score(counts, weights, k1, b, _made(directory), lambda count: None)
        return self

    def _score(
        self,
        counts: Counts,
        weights: Sequence[float] | None,
        k1: float,
        b: float,
        directory: Path | None,
        advance: Advance,
    ) -> None:
        self.k1, self.b = float(k1), float(b)
        self._count, self._vocabulary = counts.num_passages, counts.vocabulary
        self._postings = counts.postings(directory, advance, k1=self.k1, b=self.b, weights=weights)
        self._stemmer = Stemmer.Stemmer("english")
        self._sums: NDArray[np.float32] | None = None
        if directory is not None:
            self._write_words(directory)

    @classmethod
    def open(cls, directory: str | Path) -> Self:
        """Open the index that :meth:`save` wrote, memory-mapped.

        Raises:
            ArtifactError: there is none, or it is damaged.
        """
        directory = Path(directory)
        self = cls.__new__(cls)
        try:
            self._vocabulary = json.loads((directory / _VOCABULARY).read_text(encoding="utf-8"))
            if sorted(self._vocabulary.values()) != [*range(len(self._vocabulary))]:
                raise ValueError("its words are not numbered from 0")
            parameters = json.loads((directory / _PARAMETERS).read_text(encoding="utf-8"))
            self._count = int(parameters["num_docs"])
            method, self.k1, self.b = parameters["method"], float(parameters["k1"]), float(parameters["b"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{directory}: this is no BM25 index ({error}). Make it again.") from None
        if method != "lucene":
            raise ArtifactError(f"{directory}: a BM25 index by the method {method!r}, and 'lucene' is wanted.")
        self._postings = Postings.open(directory)
        if len(self._postings.indptr) != len(self._vocabulary) + 1:
            raise ArtifactError(f"{directory}: this BM25 index is damaged: its words and postings do not fit.")
        self._stemmer = Stemmer.Stemmer("english")
        self._sums = None
        return self

    def save(self, directory: str | Path) -> None:
        """Write the index to ``directory`` in bm25s' own layout: ``bm25s.BM25.load(directory)`` opens it as well."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._postings.save(directory)
        self._write_words(directory)

    def _write_words(self, directory: Path) -> None:
        write_json(directory / _VOCABULARY, self._vocabulary)
        parameters = {"k1": self.k1, "b": self.b, "delta": 0.5, "method": "lucene", "idf_method": "lucene"}
        parameters |= {"dtype": "float32"}
        parameters |= {"int_dtype": "int32", "num_docs": self._count, "version": bm25s.__version__, "backend": "numpy"}
        write_json(directory / _PARAMETERS, parameters)

    @property
    def num_passages(self) -> int:
        """``m``."""
        return self._count

    @property
    def num_postings(self) -> int:
        """Terms in passages, each counted once a passage."""
        return len(self._postings.rows)

    def _terms(self, queries: Sequence[str]) -> list[list[int]]:
        """The known terms of each query, in order, as often as they are there."""
        tokens = _words(queries, self._stemmer)
        known = {number: self._vocabulary.get(term) for term, number in tokens.vocab.items()}
        return [[term for number in ids if (term := known[number]) is not None] for ids in tokens.ids]

    def _summed(self, terms: Sequence[int]) -> tuple[NDArray[np.float32], list[NDArray[np.int32]]]:
        """Sums by row ``(m,)`` and the rows of each term: the only ones that are not zero, to be zeroed after use."""
        if self._sums is None:
            self._sums = np.zeros(self._count, dtype=np.float32)
        postings = self._postings.of(terms)
        try:
            for rows, scores in postings:
                self._sums[rows] += scores  # a row stands once in a term's postings
        except IndexError as error:
            raise ArtifactError(f"this BM25 index is damaged ({error}). Make it again.") from None
        return self._sums, [rows for rows, _ in postings]

    def scores(self, query: str) -> NDArray[np.float32]:
        """BM25 score of every passage ``(m,)``; zero where the query and a passage share no word."""
        sums, found = self._summed(self._terms([query])[0])
        scores = sums.copy()
        _clear(sums, found)
        return scores

    def top_k(self, query: str, k: int) -> Found:
        """Rows and scores of at most ``k`` passages that share a word with the query, best first, ties by row."""
        return self._top_k(self._terms([query])[0], k)

    def top_k_of(
        self, queries: Sequence[str], k: int, advance: Callable[[int], None] = lambda count: None
    ) -> Iterator[Found]:
        """:meth:`top_k` of each of ``queries``, in order; ``advance`` is called with the number done."""
        for part in blocks(len(queries), TEXTS):
            for terms in self._terms(queries[part]):
                yield self._top_k(terms, k)
                advance(1)
            release(self._postings.rows, self._postings.scores)

    def _top_k(self, terms: Sequence[int], k: int) -> Found:
        sums, found = self._summed(terms)
        kept = [(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))]
        cut = np.float32(0)  # the k-th best score is not below it
        for rows in found:
            scores = sums[rows]
            sums[rows] = 0  # so that a row is met once, whatever terms it shares with the query
            good = (scores >= cut) & (scores > 0)
            kept.append((rows[good], scores[good]))
            cut = max(cut, _kth_best(kept[-1][1], k))
        rows, scores = (np.concatenate(column) for column in zip(*kept, strict=True))
        good = scores >= _kth_best(scores, k)  # with all that tie at the cut
        rows, scores = rows[good], scores[good]
        order = np.lexsort((rows, -scores))[:k]
        return rows[order].astype(np.int64), scores[order]

    def shares_of_best(self, query: str, rows: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """BM25 scores of some rows, each divided by the query's best score over all passages (0 where that is 0)."""
        sums, found = self._summed(self._terms([query])[0])
        best = max((float(sums[rows_of_term].max(initial=0.0)) for rows_of_term in found), default=0.0)
        shares: NDArray[np.float32] = sums[np.asarray(rows, dtype=np.int64)] / np.float32(best or 1.0)
        _clear(sums, found)
        return shares


def count_words(counts: Counts, *fields: Iterable[str], total: int = 0) -> None:
    """Count the words of passages into ``counts``.

    Args:
        counts: Made for as many fields.
        fields: Texts of all passages in row order; the fields of a passage are at the same place. Read once, in blocks.
        total: How many passages there are, for the progress bar.
    """
    stemmer = Stemmer.Stemmer("english")
    count_texts(fields, lambda texts: _words(texts, stemmer), counts, total)


def _words(texts: Sequence[str], stemmer: Any) -> Any:
    """bm25s' tokens: ``ids``, integers of each text, and ``vocab``, number by term."""
    return bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)


def _made(directory: str | Path | None) -> Path | None:
    """The directory, made where there is none yet."""
    if directory is None:
        return None
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory)


def _require_range(k1: float, b: float) -> None:
    if not (0 <= k1 < float("inf") and 0 <= b <= 1):
        raise InputError(f"k1 = {k1:g} and b = {b:g}: give BM25 a k1 of 0 or more and a b from 0 to 1.")


def _kth_best(scores: NDArray[np.float32], k: int) -> np.float32:
    """The ``k``-th best of ``scores``; 0 where there are fewer."""
    place = len(scores) - k
    return np.float32(np.partition(scores, place)[place]) if place >= 0 and k > 0 else np.float32(0)


def _clear(sums: NDArray[np.float32], found: Iterable[NDArray[np.int32]]) -> None:
    for rows in found:
        sums[rows] = 0
