"""Near copies: questions of a split that resemble a training question of the same relevant passage.

A system that learns from questions can answer a near copy by remembering the training question's passage. So report
gains with and without near copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.near_texts import words_of
from gnnretrieval.errors import InputError
from gnnretrieval.pages.reports import Figures
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks, gather_rows

ALIKE_WORDS = 0.5  # least Jaccard similarity of questions that share most of their words
NEAR_WORDS = 0.85  # least Jaccard similarity of questions that differ in a word or two
UNLIKE_WORDS = 0.1  # questions with a lower Jaccard similarity share a stop word at most
ALIKE_VECTORS, NEAR_VECTORS = 0.8, 0.9  # cosines
_BLOCK = 1024

Judged = Mapping[str, Mapping[str, int]]  # relevance by passage by query
_Largest = Callable[[Sequence[str], Sequence[str]], Sequence[float]]  # for each id of the first, over the second


class QueryVectors(NamedTuple):
    """Vectors of a dataset's queries by one encoder.

    Attributes:
        encoder: Name of the encoder.
        rows: Row of ``vectors`` by query id.
        vectors: Vectors ``(n, d)`` of any norm; may be memory-mapped.
    """

    encoder: str
    rows: Mapping[str, int]
    vectors: NDArray[np.floating]


class WordShares(Figures):
    """Shares of questions by the Jaccard similarity of their words, by threshold as text."""

    at_least: dict[str, float]
    below: dict[str, float]


class VectorShares(Figures):
    """Shares of questions by the cosine of their vectors, by threshold as text."""

    encoder: str
    at_least: dict[str, float]


class NearCopies(Figures):
    """How many questions of a split are near copies of a question of another."""

    split: str
    of: str
    """The split of the training questions."""
    queries: int
    """Questions of ``split``."""
    with_shared_passage: float
    """Share of these with a relevant passage of a question of ``of``."""
    by_words: WordShares
    by_vectors: VectorShares | None
    """None without vectors."""


class _Shared(NamedTuple):
    """Questions of a passage that is relevant in both splits: of the split, and of the training split."""

    questions: list[str]
    trained: list[str]


def copy_similarity(dataset: Dataset, split: str, of: str = "train") -> dict[str, float]:
    """Word similarity of each question of ``split`` with the most similar training question of the same passage.

    The similarity is the Jaccard similarity of the sets of casefolded words
    (:func:`~gnnretrieval.data.inspection.near_texts.words_of`). The file of queries is read once. Memory is bounded by
    the texts of questions of passages that are relevant in both splits. Time grows with the pairs of questions per
    passage.

    Args:
        dataset: The dataset.
        split: Split of the questions.
        of: Split of the training questions.

    Returns:
        Similarity between 0 and 1 by query id, in the order of ``dataset.split(split)``. It is 0 where no question of
        ``of`` shares a relevant passage, and 1 for a query with the same relevant passage in both splits.

    Raises:
        InputError: a split does not exist.
    """
    return _by_words(dataset, dataset.split(split), dataset.split(of))


def copy_cosine(dataset: Dataset, split: str, vectors: QueryVectors, of: str = "train") -> dict[str, float]:
    """Similarity as in :func:`copy_similarity`, by the cosine of vectors; negative cosines and zero vectors count as 0.

    Raises:
        InputError: a split does not exist, or a question has no vector.
    """
    return _by_vectors(dataset, dataset.split(split), dataset.split(of), vectors)


def copy_figures(
    dataset: Dataset, judged: Mapping[str, Judged], vectors: QueryVectors | None = None, of: str = "train"
) -> list[NearCopies]:
    """Near copies in each split of ``judged`` except ``of``; empty where ``of`` is missing."""
    others = [name for name in judged if name != of and of in judged]
    return [_copies(dataset, judged, name, of, vectors) for name in others]


def _copies(
    dataset: Dataset, judged: Mapping[str, Judged], split: str, of: str, vectors: QueryVectors | None
) -> NearCopies:
    questions, trained = judged[split], judged[of]
    words = _by_words(dataset, questions, trained)
    by_vectors = None
    if vectors is not None:
        cosines = _by_vectors(dataset, questions, trained, vectors)
        by_vectors = VectorShares(encoder=vectors.encoder, at_least=_at_least(cosines, (ALIKE_VECTORS, NEAR_VECTORS)))
    sharing = {id_ for passage in _shared(questions, trained) for id_ in passage.questions}
    unlike = sum(value < UNLIKE_WORDS for value in words.values())
    return NearCopies(
        split=split,
        of=of,
        queries=len(words),
        with_shared_passage=len(sharing) / len(words),
        by_words=WordShares(
            at_least=_at_least(words, (ALIKE_WORDS, NEAR_WORDS)), below={str(UNLIKE_WORDS): unlike / len(words)}
        ),
        by_vectors=by_vectors,
    )


def _at_least(similarities: Mapping[str, float], thresholds: Sequence[float]) -> dict[str, float]:
    """Share of questions with at least each threshold's similarity, by threshold as text."""
    values = list(similarities.values())
    return {str(least): sum(value >= least for value in values) / len(values) for least in thresholds}


def _by_words(dataset: Dataset, judged: Judged, trained: Judged) -> dict[str, float]:
    shared = _shared(judged, trained)
    wanted = {id_ for passage in shared for ids in passage for id_ in ids}
    texts = {query.id: query.text for query in dataset.queries() if query.id in wanted} if wanted else {}

    def words(ids: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset(words_of(texts[id_])) for id_ in ids]

    def largest(ids: Sequence[str], others: Sequence[str]) -> list[float]:
        known = words(others)
        return [max(_jaccard(own, other) for other in known) for own in words(ids)]

    return _over_passages(judged, shared, largest)


def _by_vectors(dataset: Dataset, judged: Judged, trained: Judged, vectors: QueryVectors) -> dict[str, float]:
    def unit(ids: Sequence[str]) -> NDArray[np.float32]:  # (len(ids), d)
        try:
            rows = np.array([vectors.rows[id_] for id_ in ids], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"query {error} has no vector: encode this dataset again.", dataset.path) from None
        gathered = gather_rows(vectors.vectors, rows)
        lengths = np.linalg.norm(gathered, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        scaled: NDArray[np.float32] = gathered / lengths
        return scaled

    def largest(ids: Sequence[str], others: Sequence[str]) -> list[float]:
        known = unit(others)
        maxima = [(unit(ids[part]) @ known.T).max(axis=1) for part in blocks(len(ids), _BLOCK)]
        cosines: list[float] = np.concatenate(maxima).tolist()
        return cosines

    return _over_passages(judged, _shared(judged, trained), largest)


def _shared(judged: Judged, trained: Judged) -> list[_Shared]:
    known = _by_passage(trained)
    return [_Shared(ids, known[passage]) for passage, ids in _by_passage(judged).items() if passage in known]


def _by_passage(judged: Judged) -> dict[str, list[str]]:
    """The questions that each passage is relevant to, by passage id."""
    questions: dict[str, list[str]] = {}
    for query, grades in judged.items():
        for passage, grade in grades.items():
            if grade > 0:
                questions.setdefault(passage, []).append(query)
    return questions


def _over_passages(judged: Judged, shared: Sequence[_Shared], largest: _Largest) -> dict[str, float]:
    """The largest similarity of each question over its shared passages; 0 without any."""
    similarities = dict.fromkeys(judged, 0.0)
    with progress("questions compared with training questions", len(shared), "passages") as meter:
        for passage in meter.each(shared):
            for id_, value in zip(passage.questions, largest(passage.questions, passage.trained), strict=True):
                similarities[id_] = max(similarities[id_], value)
    return similarities


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both)
