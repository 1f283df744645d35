"""Adaptive retrieval: a re-ranker also scores the neighbours of the passages that it scored highest.

A passage that the first stage missed is still scored if it is a neighbour of one that was scored. The number of scored
passages, the *budget* ``c``, is that of plain reranking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

from gnnretrieval.data.records import ScoredPassage

Neighbors = Callable[[Sequence[str]], Sequence[Sequence[str]]]  # neighbours of each passage, nearest first
Method = Literal["gar", "ladr"]


class AdaptiveReranking(ABC):
    """Which passages of one question a re-ranker scores, batch by batch.

    .. code-block:: python

        while batch := reranking.next():
            reranking.receive(batch, scores_of(batch))

    Args:
        first: The first stage's ranking ``R0``, best first.
        neighbors: Neighbours of passages.
        budget: Number of passages that are scored, ``c``.
        batch: Number of passages that are scored before the next ones are chosen, ``b``.
    """

    def __init__(self, first: Sequence[ScoredPassage], neighbors: Neighbors, budget: int, batch: int) -> None:
        self._waiting = dict.fromkeys(scored.passage_id for scored in first)
        self._neighbors, self._budget, self._batch = neighbors, budget, batch
        self.scores: dict[str, float] = {}

    @property
    def _left(self) -> int:
        return self._budget - len(self.scores)

    def next(self) -> list[str]:
        """The passages to score next; none if the budget is used up, or every passage within reach is scored."""
        return self._choose() if self._left > 0 else []

    @abstractmethod
    def _choose(self) -> list[str]:
        """As :meth:`next`, if the budget is not used up."""

    def receive(self, passages: Sequence[str], scores: Sequence[float]) -> None:
        """Take the re-ranker's scores of a batch."""
        self.scores.update(zip(passages, scores, strict=True))
        for passage in passages:
            self._waiting.pop(passage, None)

    def ranking(self) -> list[ScoredPassage]:
        """The scored passages, and below them the others of the first stage in their order."""
        scored = [ScoredPassage(passage, score) for passage, score in self.scores.items()]
        lowest = min([0.0, *self.scores.values()])
        return scored + [ScoredPassage(id_, lowest - number) for number, id_ in enumerate(self._waiting, 1)]

    def _from_first(self, most: int) -> list[str]:
        return list(islice(self._waiting, most))


class FirstOnly(AdaptiveReranking):
    """Plain reranking: the best of the first stage, as many as the budget; arguments as :class:`AdaptiveReranking`."""

    def _choose(self) -> list[str]:
        return self._from_first(min(self._batch, self._left))


class Gar(AdaptiveReranking):
    """GAR (`MacAvaney et al. 2022 <https://arxiv.org/abs/2208.08942>`_, algorithm 1).

    Batches are taken by turns from the first stage and from the *frontier*: the neighbours of scored passages, each
    with the highest score of a passage that it is a neighbour of. Arguments as :class:`AdaptiveReranking`.
    """

    def __init__(self, first: Sequence[ScoredPassage], neighbors: Neighbors, budget: int, batch: int) -> None:
        super().__init__(first, neighbors, budget, batch)
        self._frontier: dict[str, float] = {}
        self._is_frontiers_turn = False

    def _choose(self) -> list[str]:
        from_frontier = bool(self._frontier) and (self._is_frontiers_turn or not self._waiting)
        self._is_frontiers_turn = not from_frontier
        most = min(self._batch, self._left)
        if not from_frontier:
            return self._from_first(most)
        return sorted(self._frontier, key=lambda passage: -self._frontier[passage])[:most]  # ties: first come first

    def receive(self, passages: Sequence[str], scores: Sequence[float]) -> None:
        """As :meth:`AdaptiveReranking.receive`; the passages' neighbours join the frontier."""
        super().receive(passages, scores)
        for passage in passages:
            self._frontier.pop(passage, None)
        best_first = sorted(zip(scores, passages, strict=True), reverse=True)
        neighbors = self._neighbors([passage for _, passage in best_first])
        for (score, _), neighbors_of_passage in zip(best_first, neighbors, strict=True):
            for neighbor in neighbors_of_passage:
                if neighbor not in self.scores and score > self._frontier.get(neighbor, float("-inf")):
                    self._frontier[neighbor] = score


class Ladr(AdaptiveReranking):
    """Adaptive LADR (`Kulkarni et al. 2023 <https://arxiv.org/abs/2307.16779>`_, 3.2), within a budget.

    The first half of the budget goes to the first stage. Then the neighbours of the ``batch`` best scored passages are
    scored, again and again, until they are all scored. What is left goes to the first stage. Arguments as
    :class:`AdaptiveReranking`.
    """

    def _choose(self) -> list[str]:
        if not self.scores:
            return self._from_first((self._budget + 1) // 2)
        best = sorted(self.scores, key=lambda passage: -self.scores[passage])[: self._batch]
        neighbors = dict.fromkeys(passage for near in self._neighbors(best) for passage in near)
        unscored = (passage for passage in neighbors if passage not in self.scores)
        return list(islice(unscored, self._left)) or self._from_first(self._left)


ADAPTIVE: dict[Method, type[AdaptiveReranking]] = {"gar": Gar, "ladr": Ladr}
