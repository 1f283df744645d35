"""Training data of encoders: queries with positives and negatives, their texts, and their relevance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example

LOOKED_AT = 10_000  # maximum number of texts tokenised to count those that are cut


class Texts(NamedTuple):
    """Texts of queries and passages by id, as encoders read them."""

    queries: Mapping[str, str]
    passages: Mapping[str, str]

    @classmethod
    def of(cls, dataset: Dataset, queries: Iterable[str], passages: Iterable[str]) -> Texts:
        """The texts of some queries and passages.

        Raises:
            GnnRetrievalError: An id is not in the dataset.
        """
        query_ids, passage_ids = set(queries), set(passages)
        made = cls(
            {query.id: query.text for query in dataset.queries() if query.id in query_ids},
            {passage.id: passage.full_text for passage in dataset.passages() if passage.id in passage_ids},
        )
        require_texts(dataset, query_ids, made.queries, "query")
        require_texts(dataset, passage_ids, made.passages, "passage")
        return made


def require_texts(dataset: Dataset, ids: Set[str], known: Collection[str], what: str) -> None:
    """Check that the dataset has the queries or passages that training examples name.

    Raises:
        GnnRetrievalError: An id is not among ``known``.
    """
    if missing := ids - set(known):
        raise GnnRetrievalError(
            f"{dataset.path}: the training examples name {what} {min(missing)!r}, which is not in it. "
            "Mine them again from this dataset."
        )


def labelled_examples(dataset: Dataset, split: str, hidden: frozenset[str] = frozenset()) -> list[Example]:
    """The labels of a split as examples without negatives; queries without a positive are left out.

    Args:
        dataset: The dataset.
        split: Name of the split.
        hidden: Ids of queries to leave out.
    """
    return [
        Example(query, tuple(Candidate(passage, "label") for passage in positives), ())
        for query, judged in dataset.split(split).items()
        if query not in hidden and (positives := [passage for passage, relevance in judged.items() if relevance > 0])
    ]


def merged(parts: Sequence[Iterable[Example]]) -> list[Example]:
    """Join examples of several sources, one per query. A positive of a query in any source is never its negative."""
    by_query: dict[str, tuple[dict[str, Candidate], dict[str, Candidate]]] = {}
    for part in parts:
        for example in part:
            positives, negatives = by_query.setdefault(example.query, ({}, {}))
            for kept, new in ((positives, example.positives), (negatives, example.negatives)):
                for candidate in new:
                    if candidate.passage not in kept or kept[candidate.passage].probability is None:
                        kept[candidate.passage] = candidate
    return [
        Example(query, tuple(positives.values()), tuple(c for id_, c in negatives.items() if id_ not in positives))
        for query, (positives, negatives) in by_query.items()
        if positives
    ]


def in_share(query: str, share: float) -> bool:
    """Whether a query belongs to a share of all queries; a larger share includes a smaller one."""
    digest = hashlib.sha256(query.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


class Relevance:
    """Relevance of passages to queries: positives, and passages with the text of a positive, are not negatives.

    Queries with the same text share their positives.

    Args:
        examples: Training examples.
        texts: Their texts.
    """

    def __init__(self, examples: Sequence[Example], texts: Texts) -> None:
        numbers: dict[str, int] = {}
        self._passage = {
            id_: numbers.setdefault(normalised(text), len(numbers)) for id_, text in texts.passages.items()
        }
        text_of = {id_: normalised(text) for id_, text in texts.queries.items()}
        of_text: dict[str, set[int]] = {}
        for example in examples:
            known = of_text.setdefault(text_of[example.query], set())
            known.update(self._passage[candidate.passage] for candidate in example.positives)
        self._relevant = {id_: of_text.get(text, set()) for id_, text in text_of.items()}

    def mask(self, queries: Sequence[str], passages: Sequence[str]) -> NDArray[np.bool_]:
        """``(B, C)`` bool, True where the passage is relevant to the query."""
        texts = np.array([self._passage[id_] for id_ in passages], dtype=np.int64)
        mask = np.zeros((len(queries), len(passages)), dtype=np.bool_)
        for row, query in enumerate(queries):
            mask[row] = np.isin(texts, list(self._relevant[query]))
        return mask

    def is_relevant(self, query: str, passage: str) -> bool:
        """Whether ``passage``, or a passage with the same text, is a positive of ``query``."""
        return self._passage[passage] in self._relevant[query]


class Drawn(NamedTuple):
    """A query of a batch with its sampled positive and negatives."""

    query: str
    positive: Candidate
    negatives: list[Candidate]


def draw(examples: Sequence[Example], size: int, negatives: int, seed: int, epoch: int, number: int) -> list[Drawn]:
    """Sample batch ``number`` of an epoch: queries, each with one of its positives and some of its negatives.

    The result depends only on the arguments, so a resumed run samples the same.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(examples))
    rng = np.random.default_rng([seed, epoch, number])
    drawn = []
    for row in order[number * size : (number + 1) * size].tolist():
        example = examples[row]
        positive = example.positives[int(rng.integers(len(example.positives)))]
        chosen = rng.permutation(len(example.negatives))[:negatives].tolist()
        drawn.append(Drawn(example.query, positive, [example.negatives[place] for place in chosen]))
    return drawn


def count_cut(texts: Iterable[str], lengths: Callable[[Sequence[str]], Sequence[int]], most: int) -> dict[str, int]:
    """Count the texts that are longer than ``most`` tokens, among at most :data:`LOOKED_AT` evenly spaced ones."""
    sample = list(texts)
    sample = sample[:: -(-len(sample) // LOOKED_AT)] if sample else []
    return {"texts": len(sample), "cut": sum(length > most for length in lengths(sample)), "max_tokens": most}
