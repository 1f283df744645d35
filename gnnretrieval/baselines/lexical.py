"""BM25 over passages that are expanded with the training questions they are labelled with.

doc2query (Nogueira et al. 2019) appends generated questions to a passage; here they are the questions of the training
split. With ``neighbour_weight``, a passage also receives the terms of its graph neighbours: training questions that
retrieved it and are not labelled with it. This is message passing with words. The added terms also make the passage
longer, and BM25 scores long passages lower. Where training and dev questions are about different documents, this alone
may give a gain: the passages of the training documents have more neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from gnnretrieval.encoders.bm25 import BM25, count_words
from gnnretrieval.encoders.postings import K1, B, Counts
from gnnretrieval.errors import InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.progress import progress

Questions = Mapping[int, Sequence[str]]

CUTOFF = 10  # cutoff of the reciprocal rank on dev


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


CHOICES = {
    "repeats": (0, 1, 2, 3),
    "neighbour_weight": (0.0, 0.25, 0.5),
    "k1": (0.6, 0.9, 1.2, 1.5, 2.0),
    "b": (0.3, 0.5, 0.75, 0.9),
}


class LexicalChoice(NamedTuple):
    """The settings of BM25 that were chosen on dev.

    Attributes:
        best: The setting with the best RR@10 on dev; it may use no questions.
        plain: The best setting without questions: tuned BM25.
        dev: RR@10 on dev, 0 to 1, of every setting that was tried, the untuned ``LexicalSetting()`` among them.
    """

    best: LexicalSetting
    plain: LexicalSetting
    dev: Mapping[LexicalSetting, float]


def expanded_texts(texts: Iterable[str], questions: Questions, repeats: int) -> Iterator[str]:
    """Each passage's text followed by its questions, each ``repeats`` times.

    Args:
        texts: Texts of the passages, in row order.
        questions: Questions by passage row; a passage may have none.
        repeats: How often each question is appended, 0 or more.
    """
    for row, text in enumerate(texts):
        yield "\n".join([text, *(question for question in questions.get(row, ()) for _ in range(repeats))])


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
        setting: The setting, usually chosen by :func:`choose_lexical`.
        neighbours: Neighbouring questions by passage row (:func:`neighbour_questions`); None: none.

    Raises:
        InputError: Questions are given for a row that is not below ``m``.
    """
    _require_rows(num_passages, train_questions, neighbours or {})
    texts = expanded_texts(passages(), train_questions, setting.repeats)
    with Counts(fields=2) as counts:
        count_words(counts, texts, _joined(neighbours or {}, num_passages), total=num_passages)
        return BM25.of_counts(counts, (1.0, setting.neighbour_weight), k1=setting.k1, b=setting.b)


def choose_lexical(
    passages: Callable[[], Iterable[str]],
    num_passages: int,
    train_questions: Questions,
    dev_queries: Sequence[str],
    dev_relevant: Sequence[Sequence[int]],
    neighbours: Questions | None = None,
) -> LexicalChoice:
    """Choose the settings with the best RR@10 on dev, with and without questions.

    A coordinate search starts from untuned BM25: each setting in turn takes its best value of ``CHOICES``, until none
    changes. It runs once over all settings, and once over ``k1`` and ``b`` without questions. Of equally good settings,
    the nearest to untuned BM25 in steps of ``CHOICES`` is chosen. Words are counted once; only the scores of the
    postings and the ranking of the dev questions are computed for each setting.

    Args:
        passages: A function that gives the passages' texts in row order; read once.
        num_passages: Number of passages ``m``.
        train_questions: Labelled training questions by passage row.
        dev_queries: Texts of dev questions.
        dev_relevant: Rows of the relevant passages of each; a question without any counts 0.
        neighbours: Neighbouring questions by passage row; None: ``neighbour_weight`` stays 0.

    Raises:
        InputError: Questions are given for a row that is not below ``m``, there are no dev questions, or
            ``dev_relevant`` has another length.
    """
    if not dev_queries or len(dev_queries) != len(dev_relevant):
        raise InputError(
            f"{len(dev_queries)} dev questions, and relevant passages of {len(dev_relevant)}: give at least one"
            " dev question, and the relevant passages of each."
        )
    _require_rows(num_passages, train_questions, neighbours or {})
    fields = [_joined(questions, num_passages) for questions in (train_questions, neighbours or {})]
    with Counts(fields=3) as counts:
        count_words(counts, passages(), *fields, total=num_passages)
        search = _Search(counts, dev_queries, [frozenset(rows) for rows in dev_relevant])
        search.climb(("repeats", "neighbour_weight", "k1", "b") if neighbours else ("repeats", "k1", "b"))
        search.climb(("k1", "b"))
    plain = [setting for setting in search.dev if not setting.repeats and not setting.neighbour_weight]
    return LexicalChoice(search.best(search.dev), search.best(plain), search.dev)


class _Search:
    """Measures settings on dev, each once.

    Args:
        counts: Word counts of the three fields: text, labelled questions, neighbouring questions.
        queries: Dev questions.
        relevant: Rows of the relevant passages of each.
    """

    def __init__(self, counts: Counts, queries: Sequence[str], relevant: Sequence[frozenset[int]]) -> None:
        self._counts, self._queries, self._relevant = counts, queries, relevant
        self.dev: dict[LexicalSetting, float] = {}

    def climb(self, names: Sequence[str]) -> None:
        """Coordinate search from the untuned setting over the settings ``names``, until none changes."""
        setting, before = LexicalSetting(), None
        while setting != before:
            before = setting
            for name in names:
                choices = [LexicalSetting(**setting._asdict() | {name: value}) for value in CHOICES[name]]
                self._measure(choices, name)
                setting = self.best(choices)

    def best(self, settings: Iterable[LexicalSetting]) -> LexicalSetting:
        """The setting with the highest RR@10; of equally good ones, the nearest to the untuned setting."""
        return min(settings, key=lambda setting: (-self.dev[setting], _steps(setting), setting))

    def _measure(self, settings: Sequence[LexicalSetting], name: str) -> None:
        missing = [setting for setting in settings if setting not in self.dev]
        with progress(f"BM25: {name} on dev", len(missing), "settings") as meter:
            for setting in missing:
                weights = (1.0, float(setting.repeats), setting.neighbour_weight)
                bm25 = BM25.of_counts(self._counts, weights, k1=setting.k1, b=setting.b)
                self.dev[setting] = self._reciprocal_rank(bm25)
                meter.advance()

    def _reciprocal_rank(self, bm25: BM25) -> float:
        """Mean RR@10; ties are ranked by row."""
        top = bm25.top_k_of(self._queries, CUTOFF)
        return fmean(
            next((1 / rank for rank, row in enumerate(rows.tolist(), 1) if row in relevant), 0.0)
            for (rows, _), relevant in zip(top, self._relevant, strict=True)
        )


def _steps(setting: LexicalSetting) -> int:
    """Steps in ``CHOICES`` from the untuned setting."""
    pairs = zip(CHOICES.values(), setting, LexicalSetting(), strict=True)
    return sum(abs(values.index(value) - values.index(default)) for values, value, default in pairs)


def _joined(questions: Questions, num_passages: int) -> Iterator[str]:
    """The questions of each passage as one text."""
    return ("\n".join(questions.get(row, ())) for row in range(num_passages))


def _require_rows(num_passages: int, *questions: Questions) -> None:
    for row in (row for of_field in questions for row in of_field):
        if not 0 <= row < num_passages:
            raise InputError(f"questions are given for passage row {row}, and the rows are 0 to {num_passages - 1:,}.")
