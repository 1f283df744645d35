"""Event logs with a known truth: position-biased, partly wrong clicks over a dataset with judgements."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.feedback.settings import SimulationSettings
from gnnretrieval.feedback.time_splits import as_date
from gnnretrieval.pages.reports import Report
from gnnretrieval.storage.artifacts import whole_file

_START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
_DAY = 86400.0
_SPARE = 5  # passages below the shown ones that may move up
_CONTINUES = 0.3  # probability that a session asks another question
_RESPELT = 0.15  # probability that a question is written in another way
_PARTS = {"train": (0.0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1.0)}  # of the time, in which a split's questions come


class SimulationReport(Report):
    """The truth of a simulated log."""

    impressions: int
    sessions: int
    questions: int
    """Questions that were asked."""
    questions_with_relevant: int
    """Questions for which a relevant passage was shown at least once."""
    clicks: int
    wrong_clicks: int
    """Clicks on passages that are not relevant."""
    propensities: list[float]
    """Probability of examination, by position."""
    attraction: float
    """Probability of a click on an examined relevant passage."""
    wrong_attraction: float
    """Probability of a click on another examined passage."""
    dev_from: str
    """Time from which dev's questions are asked, in UTC."""
    test_from: str
    """Time from which test's questions are asked, in UTC."""

    def to_text(self) -> str:
        """The truth in a few lines."""
        return "\n".join(
            [
                f"{self.impressions:,} impressions of {self.sessions:,} sessions, {self.questions:,} questions",
                f"a relevant passage was shown for {self.questions_with_relevant:,} questions",
                f"{self.clicks:,} clicks, {self.wrong_clicks:,} of them wrong",
                f"a click on an examined passage: {self.attraction:.3f} if it is relevant, {self.wrong_attraction:.3f} "
                "if not",
                f"propensities: {', '.join(f'{value:.3f}' for value in self.propensities)}",
                f"dev from {self.dev_from}, test from {self.test_from}",
            ]
        )


class ShownLists(NamedTuple):
    """Shown lists.

    Attributes:
        times: ``(n,)`` seconds since 1970, ascending.
        questions: ``(n,)`` number of the question.
        passages: The list of each.
        relevant: ``(n, K)`` bool; False below the end of a list.
        filled: ``(n, K)`` bool, whether the list has this position.
    """

    times: NDArray[np.float64]
    questions: NDArray[np.int64]
    passages: list[list[str]]
    relevant: NDArray[np.bool_]
    filled: NDArray[np.bool_]


def simulate_log(
    dataset: Dataset,
    out: str | Path,
    settings: SimulationSettings | None = None,
    *,
    rankings: Mapping[str, Sequence[str]] | None = None,
) -> SimulationReport:
    r"""Write a log of a simulated search over ``dataset`` to ``out``, as JSON lines, one line a shown list.

    Clicks follow the position-based model, :math:`P(C = 1 \mid q, d, k) = k^{-\eta}\, \gamma_{qd}`. A relevant passage
    has :math:`\gamma =` ``attraction``; all others have one value, by which the expected share of wrong clicks is
    ``wrong_clicks``. Questions of train are asked in the first 80 % of the time, those of dev in the next 10 %, those
    of test in the last 10 %. Some are written with other case, spaces or punctuation. The same arguments give the same
    bytes.

    Args:
        dataset: Passages, questions and judgements, which are the truth.
        out: The file.
        settings: The behaviour of the users.
        rankings: Passage ids by query id, best first, as the simulated search ranks; None: BM25 ranks.

    Returns:
        The truth.

    Raises:
        InputError: no question of a split train, dev or test has a relevant passage and a ranking, or
            ``wrong_clicks`` is out of reach.
    """
    settings = settings or SimulationSettings()
    rng = np.random.default_rng(settings.seed)
    splits = {name: dataset.split(name) for name in _PARTS if name in dataset.splits}
    judged = {
        query: {passage for passage, value in grades.items() if value > 0}
        for qrels in splits.values()
        for query, grades in qrels.items()
        if any(value > 0 for value in grades.values())
    }
    texts = {query.id: query.text for query in dataset.queries() if query.id in judged}
    if rankings is None:
        rankings = _by_bm25(dataset, texts, settings.shown + _SPARE)
    lists = _lists(splits, judged, rankings, settings, rng)
    clicked, theta, right, wrong = draw_clicks(lists, settings, rng)
    sessions = _write_log(Path(out), lists, clicked, [texts[query] for query in judged], rng)
    return SimulationReport(
        impressions=len(lists.questions),
        sessions=sessions,
        questions=len(np.unique(lists.questions)),
        questions_with_relevant=len(np.unique(lists.questions[lists.relevant.any(1)])),
        clicks=int(clicked.sum()),
        wrong_clicks=int((clicked & ~lists.relevant).sum()),
        propensities=theta.tolist(),
        attraction=right,
        wrong_attraction=wrong,
        dev_from=as_date(_START + _PARTS["dev"][0] * settings.days * _DAY),
        test_from=as_date(_START + _PARTS["test"][0] * settings.days * _DAY),
    )


def _write_log(
    path: Path, lists: ShownLists, clicked: NDArray[np.bool_], texts: Sequence[str], rng: np.random.Generator
) -> int:
    """Write a line a list, with the texts of the questions by their number; returns the number of sessions."""
    sessions = 0
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for number, question in enumerate(lists.questions.tolist()):
            if not number or rng.random() >= _CONTINUES:
                sessions += 1
            shown = lists.passages[number]
            record = {
                "time": as_date(float(lists.times[number])),
                "session": f"s{sessions:06d}",
                "query": _respelt(texts[question], rng),
                "shown": shown,
                "clicked": [passage for passage, click in zip(shown, clicked[number], strict=False) if click],
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return sessions


def _by_bm25(dataset: Dataset, texts: Mapping[str, str], depth: int) -> dict[str, list[str]]:
    from gnnretrieval.encoders.bm25 import BM25

    passages = [passage.full_text for passage in dataset.passages()]
    retrieved = BM25(passages).top_k_of(list(texts.values()), depth)
    return {
        query: [dataset.passage_ids[row] for row in rows.tolist()]
        for query, (rows, _) in zip(texts, retrieved, strict=True)
    }


def _lists(
    splits: Mapping[str, Mapping[str, Mapping[str, int]]],
    judged: Mapping[str, set[str]],
    rankings: Mapping[str, Sequence[str]],
    settings: SimulationSettings,
    rng: np.random.Generator,
) -> ShownLists:
    number_of = {query: number for number, query in enumerate(judged)}
    times, questions = [], []
    present = {
        name: [query for query in qrels if query in judged and rankings.get(query)] for name, qrels in splits.items()
    }
    present = {name: queries for name, queries in present.items() if queries}
    whole = sum(_PARTS[name][1] - _PARTS[name][0] for name in present)
    if not present:
        raise InputError("no question of train, dev or test has a relevant passage and a ranking.")
    for name, queries in present.items():
        begin, end = _PARTS[name]
        count = max(1, round(settings.impressions * (end - begin) / whole))
        weight = 1.0 / np.arange(1, len(queries) + 1) ** settings.popularity
        drawn = rng.permutation(len(queries))[rng.choice(len(queries), count, p=weight / weight.sum())]
        questions.append(np.array([number_of[query] for query in queries], dtype=np.int64)[drawn])
        times.append(np.sort(_START + settings.days * _DAY * rng.uniform(begin, end, count)))
    numbers, ids = np.concatenate(questions), list(judged)
    return show_lists(
        np.concatenate(times),
        numbers,
        [rankings[ids[question]] for question in numbers.tolist()],
        [judged[ids[question]] for question in numbers.tolist()],
        settings,
        rng,
    )


def show_lists(
    times: NDArray[np.float64],
    questions: NDArray[np.int64],
    rankings: Sequence[Sequence[str]],
    relevant: Sequence[Collection[str]],
    settings: SimulationSettings,
    rng: np.random.Generator,
) -> ShownLists:
    """The lists that a search shows: the best of each ranking, with the variation of the settings.

    Args:
        times: ``(n,)`` seconds since 1970.
        questions: ``(n,)`` numbers of the asked questions.
        rankings: Passage ids for each, best first.
        relevant: Relevant passages of each.
        settings: ``shown`` and ``variation`` are used.
        rng: Source of the variation.
    """
    shown = settings.shown
    passages: list[list[str]] = []
    is_relevant, filled = np.zeros((2, len(questions), shown), dtype=np.bool_)
    for row, (ranking, answers) in enumerate(zip(rankings, relevant, strict=True)):
        best = list(ranking)[: shown + _SPARE]
        # Gumbel noise on log ranks draws an order without replacement, in which good ranks come first more often.
        scores = np.log(np.arange(1, len(best) + 1)) + settings.variation * rng.gumbel(size=len(best))
        listed = [best[place] for place in np.argsort(scores, kind="stable")[:shown].tolist()]
        passages.append(listed)
        filled[row, : len(listed)] = True
        is_relevant[row, : len(listed)] = [passage in answers for passage in listed]
    return ShownLists(times, questions, passages, is_relevant, filled)


def draw_clicks(
    lists: ShownLists, settings: SimulationSettings, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.floating], float, float]:
    """Clicks of the position-based model (:func:`simulate_log`) on shown lists.

    Returns:
        Clicks ``(n, K)``, the propensities of the positions ``(K,)``, and the probability of a click on an examined
        passage that is relevant, and on another one.
    """
    theta = 1.0 / np.arange(1, settings.shown + 1) ** settings.position_bias
    wrong = _wrong_attraction(lists, theta, settings)
    right = wrong if settings.wrong_clicks == 1 else settings.attraction
    chance = theta * np.where(lists.relevant, right, wrong) * lists.filled
    return rng.random(chance.shape) < chance, theta, float(right), float(wrong)


def _wrong_attraction(lists: ShownLists, theta: NDArray[np.floating], settings: SimulationSettings) -> float:
    """Attraction of passages that are not relevant, by which the expected share of wrong clicks is as set."""
    right = float((lists.relevant * theta).sum()) * settings.attraction
    others = float(((lists.filled & ~lists.relevant) * theta).sum())
    if settings.wrong_clicks == 1:  # as many clicks, on whatever is examined
        return right / float((lists.filled * theta).sum())
    wanted = right * settings.wrong_clicks / (1 - settings.wrong_clicks)
    if wanted > others:
        raise InputError(
            f"wrong_clicks = {settings.wrong_clicks:g} is too high: there are not enough passages that are not "
            "relevant to click. Give a lower one, or 1."
        )
    return wanted / others if others else 0.0


def _respelt(text: str, rng: np.random.Generator) -> str:
    """The question, sometimes as another person writes it."""
    if rng.random() >= _RESPELT:
        return text
    ways = (text.upper(), text.lower(), f" {text}", f"{text}?", text.replace(" ", "  "))
    return ways[int(rng.integers(len(ways)))]
