"""The choice on dev of a BM25 over passages with their training questions (:mod:`gnnretrieval.index.lexical`).

Where training and dev questions are about different documents, neighbouring questions alone may give a gain: the
passages of the training documents have more of them, and so rank lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from gnnretrieval.encoders.bm25 import BM25, count_words
from gnnretrieval.encoders.postings import Counts
from gnnretrieval.errors import InputError
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.index.lexical import LexicalSetting, Questions, joined, require_rows
from gnnretrieval.progress import progress

CUTOFF = 10  # cutoff of the reciprocal rank on dev
_DEPTH = 1000  # retrieved passages, of which those that were shown count by clicks

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


def choose_lexical(
    passages: Callable[[], Iterable[str]],
    num_passages: int,
    train_questions: Questions,
    dev_queries: Sequence[str],
    dev_relevant: Sequence[Sequence[int]],
    neighbours: Questions | None = None,
    clicked: ClickedQuestions | None = None,
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
        clicked: How the dev questions count if their labels are clicks; None: all alike.

    Raises:
        InputError: Questions are given for a row that is not below ``m``, there are no dev questions, or
            ``dev_relevant`` has another length.
    """
    if not dev_queries or len(dev_queries) != len(dev_relevant):
        raise InputError(
            f"{len(dev_queries)} dev questions, and relevant passages of {len(dev_relevant)}: give at least one"
            " dev question, and the relevant passages of each."
        )
    require_rows(num_passages, train_questions, neighbours or {})
    fields = [joined(questions, num_passages) for questions in (train_questions, neighbours or {})]
    with Counts(fields=3) as counts:
        count_words(counts, passages(), *fields, total=num_passages)
        search = _Search(counts, dev_queries, [frozenset(rows) for rows in dev_relevant], clicked)
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
        clicked: How they count by clicks; None: all alike.
    """

    def __init__(
        self,
        counts: Counts,
        queries: Sequence[str],
        relevant: Sequence[frozenset[int]],
        clicked: ClickedQuestions | None,
    ) -> None:
        self._counts, self._queries, self._relevant, self._clicked = counts, queries, relevant, clicked
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
        retrieved = [rows.tolist() for rows, _ in bm25.top_k_of(self._queries, _DEPTH if self._clicked else CUTOFF)]
        if self._clicked is not None:
            ranked = zip(retrieved, self._clicked.shown, strict=True)
            retrieved = [rows if shown is None else [row for row in rows if row in shown] for rows, shown in ranked]
        values = [
            next((1 / rank for rank, row in enumerate(rows[:CUTOFF], 1) if row in relevant), 0.0)
            for rows, relevant in zip(retrieved, self._relevant, strict=True)
        ]
        return fmean(values) if self._clicked is None else float(np.mean(self._clicked.shares * values))


def _steps(setting: LexicalSetting) -> int:
    """Steps in ``CHOICES`` from the untuned setting."""
    pairs = zip(CHOICES.values(), setting, LexicalSetting(), strict=True)
    return sum(abs(values.index(value) - values.index(default)) for values, value, default in pairs)
