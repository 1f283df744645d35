"""Evaluation of an encoder during training: dev queries against a fixed sample of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.storage.arrays import blocks
from gnnretrieval.training.encoder.encoded import encoded
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.towers import Item, TextTower
from gnnretrieval.training.gnn.held_out import HELD_OUT, dev_split


class DevQueries(NamedTuple):
    """Dev queries.

    Attributes:
        name: Name of the split, or ``"held-out training queries"``.
        relevant: Ids of the relevant passages by query id.
        hidden: Ids of training queries that must not be trained on.
    """

    name: str
    relevant: dict[str, list[str]]
    hidden: frozenset[str]


def dev_queries(dataset: Dataset, split: str, seed: int) -> DevQueries:
    """The dev split's queries; without one, all training queries of about a twelfth of the relevant passages.

    Raises:
        GnnRetrievalError: No query is left for dev, or for training.
    """
    name = dev_split(dataset)
    judged = dataset.split(name or split)
    relevant = {
        query: [passage for passage, relevance in passages.items() if relevance > 0]
        for query, passages in judged.items()
    }
    relevant = {query: passages for query, passages in relevant.items() if passages}
    training = set(dataset.split(split))
    if name is not None and not relevant:
        raise GnnRetrievalError(
            f"{dataset.path}: no query of split {name!r}, which chooses the epoch, has a relevant passage. Add "
            "judgements above 0, or delete the split: training queries are then held out."
        )
    if name is None:
        passages = sorted({passages[0] for passages in relevant.values()})
        rng = np.random.default_rng([seed, 0, 1])
        chosen = rng.permutation(passages)[: max(1, round(HELD_OUT * len(passages)))].tolist()
        relevant = _queries_of(chosen, relevant)
    if not relevant or training <= relevant.keys():
        raise GnnRetrievalError(
            f"{dataset.path}: there are too few queries for both training and dev: add a dev split."
        )
    return DevQueries(name or "held-out training queries", relevant, frozenset(training & relevant.keys()))


def _queries_of(chosen: Sequence[str], relevant: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """All queries of passages of ``chosen``, in its order, until they are as many as those that name one first."""
    queries_of: dict[str, list[str]] = {}
    for query, positives in relevant.items():
        for passage in positives:
            queries_of.setdefault(passage, []).append(query)
    firsts = set(chosen)
    wanted = sum(positives[0] in firsts for positives in relevant.values())
    held_out: set[str] = set()
    for passage in chosen:
        if len(held_out) < wanted:
            held_out.update(queries_of[passage])
    return {query: positives for query, positives in relevant.items() if query in held_out}


class RetrievalDev:
    """RR@10 and success rates of dev queries, ranked among a fixed sample of the passages.

    Args:
        dataset: The dataset with the texts.
        dev: The dev queries.
        towers: The towers ``query`` and ``passage``.
        similarity: Similarity of their vectors.
        most_queries: Maximum number of queries, a random sample.
        most_passages: Number of passages: the relevant ones, and random others.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
        seed: Seed of both samples.
    """

    block = 256  # queries ranked together

    def __init__(
        self,
        dataset: Dataset,
        dev: DevQueries,
        towers: Mapping[str, TextTower],
        similarity: Similarity,
        most_queries: int,
        most_passages: int,
        token_budget: int,
        seed: int,
    ) -> None:
        rng = np.random.default_rng([seed, 0, 2])
        queries = sorted(rng.permutation(sorted(dev.relevant))[:most_queries].tolist())
        relevant = {passage for query in queries for passage in dev.relevant[query]}
        others = [id_ for id_ in dataset.passage_ids if id_ not in relevant]
        sampled = rng.permutation(len(others))[: max(0, most_passages - len(relevant))]
        pool = sorted(relevant) + [others[row] for row in sorted(sampled.tolist())]
        texts = Texts.of(dataset, queries, pool)
        self.name, self.towers, self.similarity = dev.name, towers, similarity
        self.token_budget = token_budget
        self.queries = towers["query"].items("query", [texts.queries[query] for query in queries])
        self.passages = self.passage_items([texts.passages[id_] for id_ in pool])
        column = {id_: number for number, id_ in enumerate(pool)}
        self.relevant = [[column[passage] for passage in dev.relevant[query]] for query in queries]

    def passage_items(self, texts: Sequence[str]) -> list[Item]:
        """Items of the passages' texts."""
        return self.towers["passage"].items("passage", texts)

    def query_vectors(self) -> Tensor:
        """Vectors of the queries ``(q, d)``."""
        return encoded(self.towers["query"], self.queries, self.token_budget)

    def passage_vectors(self) -> Tensor:
        """Vectors of the passages ``(rows, d)``."""
        return encoded(self.towers["passage"], self.passages, self.token_budget)

    def measure(self) -> dict[str, float]:
        """RR@10 and success rates, means over queries; a tie with an irrelevant passage counts against a query."""
        queries = self.query_vectors()
        passages = self.passage_vectors()
        ranks = np.concatenate(
            [
                self.ranks(self.scores(part, queries[part], passages), self.relevant[part])
                for part in blocks(len(queries), self.block)
            ]
        )
        return measures_of(ranks)

    def scores(self, part: slice, queries: Tensor, passages: Tensor) -> Tensor:
        """Scores ``(b, passages)`` of the queries in ``part``, with vectors ``(b, d)``, and passages ``(rows, d)``."""
        return self.similarity.scale * queries @ passages.T

    @staticmethod
    def ranks(scores: Tensor, relevant: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Rank of each query's best relevant passage, from 1."""
        ranks = np.empty(len(relevant), dtype=np.int64)
        for row, columns in enumerate(relevant):
            best = scores[row, list(columns)].max()
            above = ~(scores[row] < best)  # NaN counts as above: a diverged encoder has 0
            above[list(columns)] = False
            ranks[row] = int(above.sum()) + 1
        return ranks


def measures_of(ranks: NDArray[np.int64]) -> dict[str, float]:
    """RR@10, and the share of queries with a relevant passage among the first 1, 5 and 20, from ranks ``(q,)``."""
    reciprocal = np.where(ranks <= 10, 1 / ranks, 0.0)
    hits = {f"Success@{cutoff}": float((ranks <= cutoff).mean()) for cutoff in (1, 5, 20)}
    return {"RR@10": float(reciprocal.mean()), **hits}
