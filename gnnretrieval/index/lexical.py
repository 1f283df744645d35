"""BM25 over passages that are expanded with the training questions they are labelled with.

doc2query (Nogueira et al. 2019) appends generated questions to a passage; here they are the questions of the training
split. With ``neighbour_weight``, a passage also receives the terms of its graph neighbours: training questions that
retrieved it and are not labelled with it. This is message passing with words. The added terms also make the passage
longer, and BM25 scores long passages lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.bm25 import BM25, count_words
from gnnretrieval.encoders.postings import K1, B, Counts
from gnnretrieval.errors import InputError
from gnnretrieval.graph.store import Graph

Questions = Mapping[int, Sequence[str]]


class LexicalSetting(NamedTuple):
    """Settings of BM25 over expanded passages.

    Attributes:
        repeats: How often each labelled question is appended; 0: never.
        neighbour_weight: Weight of a term of a neighbouring question; a term of the passage has 1.
        k1: BM25's k1.
        b: BM25's b.
    """

    repeats: int = 0
    neighbour_weight: float = 0.0
    k1: float = K1
    b: float = B


def expanded_texts(texts: Iterable[str], questions: Questions, repeats: int) -> Iterator[str]:
    """Each passage's text followed by its questions, each ``repeats`` times.

    Args:
        texts: Texts of the passages, in row order.
        questions: Questions by passage row; a passage may have none.
        repeats: How often each question is appended, 0 or more.
    """
    for row, text in enumerate(texts):
        yield "\n".join([text, *(question for question in questions.get(row, ()) for _ in range(repeats))])


def label_questions(store: Graph, visible: NDArray[np.bool_] | None = None) -> dict[int, list[str]]:
    """For each passage row, the training questions that it is labelled with.

    Args:
        store: The graph.
        visible: ``(n,)`` bool, True for the queries to take; None: all.
    """
    with store.texts() as texts:
        text_of = texts.texts_of_queries(range(store.num_queries))
    questions: dict[int, list[str]] = {}
    labels = store.labels if visible is None else store.labels[visible[store.labels[:, 0]]]
    pairs: Iterable[tuple[int, int]] = labels.tolist()
    for query, passage in pairs:
        questions.setdefault(passage, []).append(text_of[query])
    return questions


def neighbour_questions(store: Graph) -> dict[int, list[str]]:
    """For each passage row, the training questions that retrieved it and are not labelled with it, in query order.

    Args:
        store: The graph, or a view of it with fewer neighbours per question.
    """
    edges, starts = store.found_by(slice(0, store.num_passages))  # (E,), (m + 1,)
    passages = np.repeat(np.arange(store.num_passages), np.diff(starts))  # (E,)
    unlabelled = ~store.label_edges()[edges]
    with store.texts() as texts:
        text_of = texts.texts_of_queries(range(store.num_queries))
    questions: dict[int, list[str]] = {}
    for passage, edge in zip(passages[unlabelled].tolist(), edges[unlabelled].tolist(), strict=True):
        questions.setdefault(passage, []).append(text_of[edge // store.stride])
    return questions


def lexical_index(
    passages: Callable[[], Iterable[str]],
    num_passages: int,
    train_questions: Questions,
    setting: LexicalSetting,
    neighbours: Questions | None = None,
) -> BM25:
    """BM25 over the expanded passages, with one setting.

    Args:
        passages: A function that gives the passages' texts in row order.
        num_passages: Number of passages ``m``.
        train_questions: Labelled training questions by passage row.
        setting: The setting, usually chosen by :func:`gnnretrieval.baselines.lexical.choose_lexical`.
        neighbours: Neighbouring questions by passage row (:func:`neighbour_questions`); None: none.

    Raises:
        InputError: Questions are given for a row that is not below ``m``.
    """
    require_rows(num_passages, train_questions, neighbours or {})
    texts = expanded_texts(passages(), train_questions, setting.repeats)
    with Counts(fields=2) as counts:
        count_words(counts, texts, joined(neighbours or {}, num_passages), total=num_passages)
        return BM25.of_counts(counts, (1.0, setting.neighbour_weight), k1=setting.k1, b=setting.b)


def joined(questions: Questions, num_passages: int) -> Iterator[str]:
    """The questions of each passage as one text."""
    return ("\n".join(questions.get(row, ())) for row in range(num_passages))


def require_rows(num_passages: int, *questions: Questions) -> None:
    """Raise an :class:`InputError` if questions are given for a row that is not below ``num_passages``."""
    for row in (row for of_field in questions for row in of_field):
        if not 0 <= row < num_passages:
            raise InputError(f"questions are given for passage row {row}, and the rows are 0 to {num_passages - 1:,}.")
