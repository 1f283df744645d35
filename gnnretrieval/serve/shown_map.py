"""The map that the server shows: the one beside the index, if it was made from the index's embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.maps.passage_map import KIND, PassageMap, open_map
from gnnretrieval.maps.points import Points, figures_of, points_of
from gnnretrieval.serve import schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.map_page import passage_texts, question_texts
from gnnretrieval.serve.settings import MAX_MAP_POINTS
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS

_MOST_NAMED = 50  # passages of one name


class ShownMap:
    """The points of a map without removed passages, in memory.

    Args:
        retriever: The retriever of the served version; it must have a graph.

    Attributes:
        points: The points as binary (:meth:`gnnretrieval.maps.points.Points.to_bytes`).

    Raises:
        Refusal: There is no map beside the index, or it is damaged, or of other embeddings (404).
    """

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._map = _map_of(retriever)
        shown = self._points()
        self.points, self._figures = shown.to_bytes(), figures_of(self._map, shown)

    def _points(self) -> Points:
        try:
            return points_of(self._map, MAX_MAP_POINTS, self._retriever.index.removed)
        except GnnRetrievalError:
            raise _refusal("is damaged. Delete it and make it again") from None

    def figures(self, version: str) -> schemas.MapAnswer:
        """Counts and what two dimensions keep."""
        return schemas.MapAnswer(version=version, **self._figures)

    def texts(self, version: str, kind: Literal["passage", "question"], rows: Sequence[int]) -> schemas.MapTextsAnswer:
        """First words of passages or questions, without those that are not there or were removed."""
        count = self._map.num_passages if kind == "passage" else self._map.num_questions
        removed = frozenset(self._retriever.index.removed) if kind == "passage" else frozenset()
        known = [row for row in dict.fromkeys(rows) if row < count and row not in removed]
        made = (passage_texts if kind == "passage" else question_texts)(self._retriever.texts, known)
        return schemas.MapTextsAnswer(version=version, texts=[schemas.MapText(**text) for text in made])

    def named(self, version: str, name: str) -> schemas.MapTextsAnswer:
        """The passage with this id; else passages with the name in their id or title."""
        texts = self._retriever.texts
        made = passage_texts(texts, texts.rows_named(name, _MOST_NAMED))
        return schemas.MapTextsAnswer(version=version, texts=[schemas.MapText(**text) for text in made])


def _map_of(retriever: Retriever) -> PassageMap:
    place = retriever.index.path.resolve().parent / KIND
    if not place.exists():
        raise _refusal("is not made yet: gnnretrieval map build INDEX makes it")
    try:
        shown = open_map(place)
    except GnnRetrievalError:
        raise _refusal("cannot be read. Delete it and make it again") from None
    if shown.meta["inputs"].get(EMBEDDINGS) != retriever.index.meta["inputs"].get(EMBEDDINGS):
        raise _refusal("is of other embeddings than the index: gnnretrieval map build INDEX --overwrite makes it again")
    return shown


def _refusal(why: str) -> Refusal:
    return Refusal(404, "no_map", f"The map of this index {why}.")
