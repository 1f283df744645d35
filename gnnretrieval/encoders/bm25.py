"""BM25 with an English stemmer and stop words: the lexical baseline and an edge feature.

Other languages with spaces between words work without stemming. Chinese, Japanese and Korean are indexed by overlapping
pairs of characters, as by Lucene's CJKAnalyzer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import Stemmer
from numpy.typing import NDArray

from gnnretrieval.encoders.exact_search import Ties
from gnnretrieval.encoders.postings import K1, TEXTS, Advance, B, Counts, Postings, count_texts
from gnnretrieval.encoders.postings_search import Hits, PostingsSearch
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.platform.extras import without
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, release
from gnnretrieval.storage.provenance import write_json

with without("jax"):  # bm25s begins to compute with it as it is imported, and JAX takes most of a GPU's memory
    import bm25s

# Japanese kana, Han characters with their extensions, and Hangul; a single character stays as it is
_CJK = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]{2,}")
_VOCABULARY, _PARAMETERS = "vocab.index.json", "params.index.json"


class BM25:
    r"""Lucene's BM25 with all scores computed when the index is built (bm25s, Lù 2024); bm25s splits and stems words.

    .. math::
        s(q, p) = \sum_{t \in q} \ln\Bigl(1 + \frac{m - n_t + 0.5}{n_t + 0.5}\Bigr)
        \frac{f_{t,p}}{f_{t,p} + k_1 (1 - b + b\, |p| / \overline{|p|})}

    where :math:`m` is the number of passages, :math:`n_t` the number of those that contain the term :math:`t`, and
    :math:`f_{t,p}` its count in :math:`p`. A query reads only the postings of its terms.

    Memory: 8 bytes per posting (a term in a passage) when built in memory; none when built into a ``directory`` or
    opened from one. About 200 bytes per distinct term, and 4 bytes per passage while it answers. Building takes a
    temporary file of 12 bytes per posting (the first 64 MiB in memory), about 100 MiB of working memory, and 4 bytes
    per passage.

    Not thread-safe: queries share one array of sums.

    Args:
        texts: The passages' texts, title included, in row order. Read once, in blocks.
        k1: How late a term's count saturates, 0 or more.
        b: Weight of a passage's length, 0 to 1.
        total: Number of passages, for the progress bar; not needed if ``texts`` is a sequence.
        directory: Where the index is written (see :meth:`save`) and memory-mapped; None: it is built in memory.

    Raises:
        InputError: ``k1`` or ``b`` is out of range.
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
        """BM25 over passages of several fields, each with a weight.

        Args:
            counts: Words that :func:`count_words` counted; they can be used again.
            weights: ``w_f`` of each field: a term's count is ``Σ_f w_f f_{t,f}``, and lengths are weighted in the same
                way; None: 1 each.
            k1: As for the class.
            b: As for the class.
            directory: As for the class.

        Raises:
            InputError: ``k1`` or ``b`` is out of range.
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
        self._search = PostingsSearch(self._postings, self._count)
        if directory is not None:
            self._write_words(directory)

    @classmethod
    def open(cls, directory: str | Path) -> Self:
        """Open the index in ``directory``, memory-mapped.

        Raises:
            ArtifactError: There is no index, it is damaged, or its method is not ``lucene``.
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
        self._search = PostingsSearch(self._postings, self._count)
        return self

    def save(self, directory: str | Path) -> None:
        """Write the index to ``directory`` in bm25s' layout, which ``bm25s.BM25.load(directory)`` opens too."""
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
        """Number of passages ``m``."""
        return self._count

    @property
    def num_postings(self) -> int:
        """Number of postings: pairs of a passage and a term in it."""
        return len(self._postings.rows)

    def _terms(self, queries: Sequence[str]) -> list[list[int]]:
        """Numbers of each query's known terms, in order and with repetition."""
        tokens = _words(queries, self._stemmer)
        known = {number: self._vocabulary.get(term) for term, number in tokens.vocab.items()}
        return [[term for number in ids if (term := known[number]) is not None] for ids in tokens.ids]

    def scores(self, query: str) -> NDArray[np.float32]:
        """BM25 score of every passage ``(m,)`` float32; 0 for a passage that shares no word with the query."""
        return self._search.scores(self._terms([query])[0])

    def top_k(self, query: str, k: int) -> Hits:
        """Rows and scores of the ``k`` best passages that share a word with the query, best first, ties by row."""
        return self._search.top_k(self._terms([query])[0], k)

    def top_k_of(
        self,
        queries: Sequence[str],
        k: int,
        advance: Callable[[int], None] = lambda count: None,
        ties: Ties | None = None,
    ) -> Iterator[Hits]:
        """:meth:`top_k` of each of ``queries``, in order.

        Args:
            queries: Texts of the queries.
            k: Maximum number of passages of a query.
            advance: Called with 1 after each query.
            ties: As :func:`gnnretrieval.encoders.exact_search.merge_top_k`.
        """
        for part in blocks(len(queries), TEXTS):
            for terms in self._terms(queries[part]):
                yield self._search.top_k(terms, k, ties=ties)
                advance(1)
            release(self._postings.rows, self._postings.scores)

    def shares_of_best(self, query: str, rows: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """BM25 scores of ``rows``, each divided by the query's best score over all passages (0 if that is 0)."""
        return self._search.shares_of_best(self._terms([query])[0], np.asarray(rows, dtype=np.int64))


def count_words(counts: Counts, *fields: Iterable[str], total: int = 0) -> None:
    """Count the words of passages into ``counts``.

    Args:
        counts: Counts with the same number of fields.
        fields: One iterable per field: its texts of all passages in row order. Read once, in blocks.
        total: Number of passages, for the progress bar.
    """
    stemmer = Stemmer.Stemmer("english")
    count_texts(fields, lambda texts: _words(texts, stemmer), counts, total)


def _words(texts: Sequence[str], stemmer: Any) -> Any:
    """bm25s' tokens: ``ids``, the term numbers of each text, and ``vocab``, the number of each term."""
    spaced = [text if text.isascii() else _CJK.sub(_pairs, text) for text in texts]
    return bm25s.tokenize(spaced, stopwords="en", stemmer=stemmer, show_progress=False)


def _pairs(run: re.Match[str]) -> str:
    """A run of characters as its overlapping pairs, with spaces around them."""
    characters = run.group()
    return f" {' '.join(map(''.join, pairwise(characters)))} "


def _made(directory: str | Path | None) -> Path | None:
    """The directory, made if it does not exist."""
    if directory is None:
        return None
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Path(directory)


def _require_range(k1: float, b: float) -> None:
    if not (0 <= k1 < float("inf") and 0 <= b <= 1):
        raise InputError(f"k1 = {k1:g} and b = {b:g}: give BM25 a k1 of 0 or more and a b from 0 to 1.")
