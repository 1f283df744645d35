"""What encoders learn from: queries with positives and negatives, their texts, and who may be whose negative."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example

LOOKED_AT = 10_000  # texts that are split to tokens only to count the ones that are cut


class Texts(NamedTuple):
    """Texts by id, as encoders see them."""

    queries: Mapping[str, str]
    passages: Mapping[str, str]

    @classmethod
    def of(cls, dataset: Dataset, queries: Iterable[str], passages: Iterable[str]) -> Texts:
        """The texts of some queries and passages.

        Raises:
            GnnRetrievalError: the dataset has no query or passage of an id.
        """
        asked, wanted = set(queries), set(passages)
        found = cls(
            {query.id: query.text for query in dataset.queries() if query.id in asked},
            {passage.id: passage.full_text for passage in dataset.passages() if passage.id in wanted},
        )
        for what, ids, texts in (("query", asked, found.queries), ("passage", wanted, found.passages)):
            if missing := ids - texts.keys():
                raise GnnRetrievalError(
                    f"{dataset.path}: the training examples name {what} {min(missing)!r}, which is not in it. "
                    "Mine them from it again."
                )
        return found


def labelled_examples(dataset: Dataset, split: str, hidden: frozenset[str] = frozenset()) -> list[Example]:
    """The labels of a split as examples without negatives; a query with no positive is left out.

    Args:
        dataset: Where from.
        split: Which judgements.
        hidden: Queries that are left out.
    """
    return [
        Example(query, tuple(Candidate(passage, "label") for passage in positives), ())
        for query, judged in dataset.split(split).items()
        if query not in hidden and (positives := [passage for passage, relevance in judged.items() if relevance > 0])
    ]


def merged(parts: Sequence[Iterable[Example]]) -> list[Example]:
    """Examples of several sources, one a query: a passage that is anywhere positive is nowhere negative."""
    found: dict[str, tuple[dict[str, Candidate], dict[str, Candidate]]] = {}
    for part in parts:
        for example in part:
            positives, negatives = found.setdefault(example.query, ({}, {}))
            for kept, new in ((positives, example.positives), (negatives, example.negatives)):
                for candidate in new:
                    if candidate.passage not in kept or kept[candidate.passage].probability is None:
                        kept[candidate.passage] = candidate
    return [
        Example(query, tuple(positives.values()), tuple(c for id_, c in negatives.items() if id_ not in positives))
        for query, (positives, negatives) in found.items()
        if positives
    ]


def in_share(query: str, share: float) -> bool:
    """Whether a query is in a share of all: always the same ones, and the more the larger it is."""
    digest = hashlib.sha256(query.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


class Relevance:
    """Which passages are no negatives of a query: its positives, and whatever has the text of one.

    Queries of the same text share their positives.

    Args:
        examples: What is trained on.
        texts: Their texts.
    """

    def __init__(self, examples: Sequence[Example], texts: Texts) -> None:
        numbers: dict[str, int] = {}
        self._passage = {
            id_: numbers.setdefault(normalised(text), len(numbers)) for id_, text in texts.passages.items()
        }
        asked = {id_: normalised(text) for id_, text in texts.queries.items()}
        of_text: dict[str, set[int]] = {}
        for example in examples:
            known = of_text.setdefault(asked[example.query], set())
            known.update(self._passage[candidate.passage] for candidate in example.positives)
        self._relevant = {id_: of_text.get(text, set()) for id_, text in asked.items()}

    def mask(self, queries: Sequence[str], passages: Sequence[str]) -> NDArray[np.bool_]:
        """``(B, C)`` True where the passage is relevant to the query."""
        texts = np.array([self._passage[id_] for id_ in passages], dtype=np.int64)
        mask = np.zeros((len(queries), len(passages)), dtype=np.bool_)
        for row, query in enumerate(queries):
            mask[row] = np.isin(texts, list(self._relevant[query]))
        return mask

    def is_relevant(self, query: str, passage: str) -> bool:
        """Whether ``passage``, or one with its text, is a positive of ``query``."""
        return self._passage[passage] in self._relevant[query]


class Drawn(NamedTuple):
    """A query of a batch, with what was drawn for it."""

    query: str
    positive: Candidate
    negatives: list[Candidate]


def draw(examples: Sequence[Example], size: int, negatives: int, seed: int, epoch: int, number: int) -> list[Drawn]:
    """The queries of batch ``number`` of an epoch, each with one of its positives and some of its negatives.

    It follows from the arguments alone: a resumed run draws the same.
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
    """How many texts are longer than ``most`` tokens: of all, or of :data:`LOOKED_AT` of them, evenly spaced."""
    some = list(texts)
    some = some[:: -(-len(some) // LOOKED_AT)] if some else []
    return {"texts": len(some), "cut": sum(length > most for length in lengths(some)), "max_tokens": most}
