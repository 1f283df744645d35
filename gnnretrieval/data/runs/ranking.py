"""The one order of the project (law 1), and rankings in it.

A ranking is ordered by score, highest first, and equal scores by passage id, highest first, byte by byte: the order in
which trec_eval sees a run. trec_eval holds scores in float32, so two scores that differ only beyond float32 are equal
to it; here they are rounded to float32 before they are compared, and rankings carry the rounded scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.errors import InputError


class Ranking(Sequence[ScoredPassage]):
    """A query's passages in the one order, for runs of millions of lines: each takes four bytes and its id's length.

    Equal to a list of the same :class:`~gnnretrieval.data.records.ScoredPassage`.

    Args:
        ids: Passage ids, in any order, without line breaks.
        scores: Their scores, ``(n,)``.

    Attributes:
        scores: Scores in order, ``(n,)`` float32.

    Raises:
        InputError: as :func:`rank`.
    """

    __slots__ = ("_ids", "scores")

    def __init__(self, ids: list[str], scores: npt.ArrayLike) -> None:
        ordered, self.scores = _ordered(ids, scores)
        self._ids = "\n".join(ordered)

    def has(self, passage_id: str) -> bool:
        """Whether a passage is among them."""
        return passage_id in self._ids and passage_id in self.ids  # the first is fast and rarely true

    @property
    def ids(self) -> list[str]:
        """Passage ids in order."""
        return self._ids.split("\n") if len(self) else []

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[ScoredPassage]:
        return map(ScoredPassage, self.ids, self.scores.tolist())

    @overload
    def __getitem__(self, index: int) -> ScoredPassage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScoredPassage]: ...
    def __getitem__(self, index: int | slice) -> ScoredPassage | list[ScoredPassage]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Ranking | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"Ranking({list(self)})"


Run = dict[str, Sequence[ScoredPassage]]


def rank(scored: Iterable[ScoredPassage]) -> list[ScoredPassage]:
    """The passages of one query in the project's one order, with their scores rounded to float32.

    Raises:
        InputError: a score is NaN, or a passage is there twice.
    """
    passages = list(scored)
    ids, scores = _ordered([passage.passage_id for passage in passages], [passage.score for passage in passages])
    return list(map(ScoredPassage, ids, scores.tolist()))


def ranked_ids(scored: Iterable[ScoredPassage]) -> list[str]:
    """Ids of one query's passages in the one order, in which a :class:`Ranking` is already; errors as :func:`rank`."""
    return scored.ids if isinstance(scored, Ranking) else [passage.passage_id for passage in rank(scored)]


def rank_rows(
    rows: npt.NDArray[np.integer], scores: npt.NDArray[np.floating], passage_ids: Sequence[str]
) -> list[list[ScoredPassage]]:
    """One ranking a query, from the rows and scores of an index search.

    Args:
        rows: Passage rows, ``(q, k)``; a negative row (FAISS's mark for no passage) is left out.
        scores: Their scores, ``(q, k)``.
        passage_ids: Passage id by row.

    Raises:
        InputError: as :func:`rank`.
    """
    rankings = []
    for query_rows, query_scores in zip(rows, scores, strict=True):
        is_row = query_rows >= 0
        ids, rounded = _ordered([passage_ids[row] for row in query_rows[is_row].tolist()], query_scores[is_row])
        rankings.append(list(map(ScoredPassage, ids, rounded.tolist())))
    return rankings


def places_by_id(rows: npt.NDArray[np.int64], ids_of: Callable[[list[int]], Sequence[str]]) -> npt.NDArray[np.int64]:
    """Places of passage rows in the one order of equal scores, in the shape of ``rows``.

    Args:
        rows: Passage rows of any shape; negative rows are no passages.
        ids_of: Ids of some passage rows.
    """
    distinct, number = np.unique(rows, return_inverse=True)
    missing = int((distinct < 0).sum())
    ids = ids_of(distinct[missing:].tolist())
    places = np.full(len(distinct), len(ids), dtype=np.int64)
    places[missing + np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), dtype=np.int64)] = np.arange(
        len(ids)
    )
    return places[number].reshape(rows.shape)


def ties_by_id(passage_ids: Sequence[str]) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """:func:`places_by_id` for passages whose ids are in memory, by row: which of equal scores a cut keeps."""
    return lambda rows: places_by_id(rows, lambda wanted: [passage_ids[row] for row in wanted])


def _ordered(passage_ids: list[str], scores: npt.ArrayLike) -> tuple[list[str], npt.NDArray[np.float32]]:
    with np.errstate(over="ignore"):  # beyond float32 is infinite to trec_eval as well
        rounded = np.asarray(scores, dtype=np.float64).astype(np.float32)
    if np.isnan(rounded).any():
        raise InputError(
            f"passage {passage_ids[int(np.isnan(rounded).argmax())]!r} has score NaN: it cannot be ranked."
        )
    if len(set(passage_ids)) < len(passage_ids):
        twice = next(passage for n, passage in enumerate(passage_ids) if passage in passage_ids[:n])
        raise InputError(f"passage {twice!r} is twice in one ranking: keep its best score.")
    if (rounded[1:] < rounded[:-1]).all():  # the usual file is in order, and without ties
        return passage_ids, rounded
    # Strings compare by code point, which for UTF-8 is trec_eval's strcmp order.
    ordered = sorted(zip(rounded.tolist(), passage_ids, strict=True), reverse=True)
    return [passage_id for _, passage_id in ordered], np.array([score for score, _ in ordered], dtype=np.float32)
