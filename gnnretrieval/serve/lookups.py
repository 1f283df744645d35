"""Lookups by id in the graph and its texts, made in the graph's thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from gnnretrieval.index.retriever import Retriever
from gnnretrieval.index.stored_questions import plain
from gnnretrieval.index.what_if import Asked, Change, WhatIf, what_if
from gnnretrieval.serve import examples, schemas
from gnnretrieval.serve.failures import Refusal
from gnnretrieval.serve.graph_summary import graph_summary
from gnnretrieval.serve.last_update import last_update_of
from gnnretrieval.serve.shown_map import ShownMap

_VERSION = 12  # characters of a hash
_SHOWN = 400  # maximum characters of a neighbour's text; /passages/{id} gives all of it


class Lookups:
    """Lookups in one version of the index and its graph.

    Args:
        retriever: The retriever of this version.

    Attributes:
        version: The beginning of the index's hash, which every answer names.
    """

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self.version = retriever.index.hash[:_VERSION]
        self._map: ShownMap | None = None
        self._place = retriever.index.path.resolve().parent  # links may lead to another version later
        self._update: schemas.UpdateAnswer | None = None

    def require_graph(self) -> None:
        """Check that the index has a graph.

        Raises:
            Refusal: It has none (404).
        """
        if not self._retriever.has_graph:
            raise Refusal(404, "no_graph", "This server's index has no graph: nothing can be compared or explained.")

    def require(self, ids: Sequence[str], *, is_query: bool = False) -> None:
        """Check that there are passages, or training questions, with these ids.

        Raises:
            Refusal: There is none with one of them (404).
        """
        texts = self._retriever.texts
        known = texts.rows_of_queries(ids) if is_query else texts.rows_of_passages(ids)
        missing = next((id_ for id_ in ids if id_ not in known), None)
        if missing is not None:
            raise Refusal(404, "not_found", f"There is no {'query' if is_query else 'passage'} {missing!r}.")

    def passage(self, id_: str) -> schemas.PassageOut:
        """The passage with an id.

        Raises:
            Refusal: There is none (404).
        """
        self.require([id_])
        return schemas.PassageOut(version=self.version, **self._retriever.passage(id_)._asdict())

    def query(self, id_: str) -> schemas.QueryOut:
        """The training question with an id.

        Raises:
            Refusal: There is none (404).
        """
        self.require([id_], is_query=True)
        return schemas.QueryOut(version=self.version, **self._retriever.query(id_)._asdict())

    def neighbors(self, id_: str, is_query: bool, most: int) -> schemas.NeighborsAnswer:
        """A node with its ``most`` heaviest neighbours and theirs; the neighbours' texts are cut.

        Raises:
            Refusal: There is no such node (404).
        """
        self.require([id_], is_query=is_query)
        described = self._retriever.neighborhood(id_, is_query, most=most)
        for neighbor in described["neighbors"]:
            _cut(neighbor["neighbors"])
        _cut(described["neighbors"])
        return schemas.NeighborsAnswer(version=self.version, **described)

    @cached_property
    def graph(self) -> schemas.GraphAnswer:
        """The graph's figures."""
        return graph_summary(self._retriever.shown_graph, self.version, self._retriever.no_what_if)

    @property
    def map(self) -> ShownMap:
        """The map beside the index; one that is made later is found by the next request.

        Raises:
            Refusal: The index has no graph, or there is no map of it (404).
        """
        self.require_graph()
        if self._map is None:
            self._map = ShownMap(self._retriever)
        return self._map

    def warm_up(self) -> None:
        """Read the files that are opened by path, now that they are surely of this version."""
        _ = self.examples
        if self._retriever.has_graph and self._retriever.num_passages:
            self._retriever.neighborhood(next(self._retriever.texts.passages()).id, most=1)
            with suppress(Refusal):
                _ = self.map

    @cached_property
    def examples(self) -> schemas.ExamplesAnswer:
        """Example questions."""
        return examples.examples_of(self._retriever, self.version)

    @property
    def update(self) -> schemas.UpdateAnswer | None:
        """The update that made the index; None if none did. Its report is written a moment after it was promoted."""
        if self._update is None:
            self._update = last_update_of(self._place, self.version)
        return self._update

    def what_if(self, question: Asked, change: Change, k: int) -> WhatIf:
        """A question's ranking after a change.

        Raises:
            Refusal: There is no such passage or training question (404).
        """
        self.require([change.passage])
        self.require(change.without, is_query=True)
        return what_if(self._retriever, question, change, k)

    def example_passages(self, question: str) -> list[str] | None:
        """The relevant passage of an example question; None if it is none, or its passage is not known."""
        same = [example for example in self.examples.questions if plain(example.question) == plain(question)]
        return [example.passage for example in same if example.passage is not None] or None


def _cut(edges: Sequence[dict[str, Any]]) -> None:
    for edge in edges:
        if len(edge["text"]) > _SHOWN:
            edge["text"] = edge["text"][: _SHOWN - 1] + "…"
