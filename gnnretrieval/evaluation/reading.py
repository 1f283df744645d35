"""Answers of a reader: exact match and F1, and the weight of the retrieval score, which dev chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gnnretrieval.data.answer_scores import answer_f1, exact_match
from gnnretrieval.data.answers import read_answers
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation.measures import mean

if TYPE_CHECKING:
    from gnnretrieval.index.answering import Answer, ReadPassages  # importing torch takes a second

EM, F1 = "EM", "F1"
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # weights of the retrieval score that dev chooses among


class WeightChoice(NamedTuple):
    """The chosen weight of the retrieval score.

    Attributes:
        weight: The weight.
        measures: EM and F1 on dev by weight.
    """

    weight: float
    measures: Mapping[float, Mapping[str, float]]


def answered_queries(dataset: Dataset, split: str) -> dict[str, list[str]]:
    """Gold answers of a split's queries, by id; only queries that have some.

    Raises:
        InputError: There is no such split, or none of its queries has answers.
    """
    known = read_answers(dataset.path / QUERIES)
    answers = {query: known[query] for query in dataset.query_ids_of(split) if query in known}
    if not answers:
        raise InputError(
            f"no query of split {split!r} has answers, and exact match needs them. Add them as metadata.answers.",
            dataset.path / QUERIES,
        )
    return answers


def answer_values(
    predicted: Mapping[str, Answer | None], answers: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """EM and F1 of each query: the highest over its gold answers; a query without a prediction counts 0.

    Args:
        predicted: The answers by query id.
        answers: Gold answers of the queries to measure.
    """
    texts = {query: answer.answer for query, answer in predicted.items() if answer is not None}
    return {
        name: {query: measure(texts[query], gold) if query in texts else 0.0 for query, gold in answers.items()}
        for name, measure in ((EM, exact_match), (F1, answer_f1))
    }


def choose_weight(
    read: Mapping[str, ReadPassages], answers: Mapping[str, Sequence[str]], weights: Sequence[float] = WEIGHTS
) -> WeightChoice:
    """The weight of the retrieval score with the best EM on dev, then the best F1, then the smallest.

    Args:
        read: The reader's spans for dev queries.
        answers: Their gold answers.
        weights: The weights to choose among.
    """
    measures = {}
    for weight in weights:
        values = answer_values({query: passages.answer(weight) for query, passages in read.items()}, answers)
        measures[weight] = mean(values)
    best = max(weights, key=lambda weight: (measures[weight][EM], measures[weight][F1], -weight))
    return WeightChoice(best, measures)
