"""Judgements from impressions: click rates without position bias, their bounds, and what is relevant by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma

from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.propensities import Propensities
from gnnretrieval.feedback.settings import FeedbackSettings

GRADES = 10  # relevance of a passage with a click rate of 1; a rate of 0.34 has relevance 3

Verdict = Literal["relevant", "not relevant", "undecided"]


class Judgement(NamedTuple):
    """A question and a passage that was shown or clicked for it.

    Attributes:
        question: Its normalised text.
        passage: Id of the passage.
        impressions: How often it was shown for the question.
        clicks: How often it was clicked or got a thumb up, ``C``.
        examined: Sum of the propensities of its impressions, ``E``.
        rate: Click rate without position bias.
        low: Lower bound of the rate.
        high: Upper bound of the rate.
        verdict: What follows.
    """

    question: str
    passage: str
    impressions: int
    clicks: int
    examined: float
    rate: float
    low: float
    high: float
    verdict: Verdict

    @property
    def relevance(self) -> int | None:
        """As in the judgements of a dataset: the rate in tenths, 1 to 10; 0 for a hard negative; None: undecided."""
        if self.verdict == "undecided":
            return None
        return min(GRADES, max(1, round(GRADES * self.rate))) if self.verdict == "relevant" else 0


class _Count:
    """Votes on a pair."""

    __slots__ = ("clicks", "examined", "impressions", "touched")

    def __init__(self) -> None:
        self.impressions = self.clicks = 0
        self.examined = 0.0
        self.touched = False  # clicked for a moment, or without a list to compare with

    def add(self, one: Shown, propensity: float) -> None:
        self.impressions += 1
        if one.thumb < 0:
            self.examined += 1.0  # a thumb down was certainly given after a look
        elif one.dwell is not None:
            self.touched = True
        else:
            self.clicks += one.clicked
            self.examined += propensity


def judge(
    impressions: Sequence[Impression], propensities: Propensities, settings: FeedbackSettings, has_lists: bool = True
) -> list[Judgement]:
    r"""Judgements of all pairs of a question and a passage, sorted by question and passage.

    A click at position :math:`k` estimates the click rate by :math:`c_i / \theta_{k_i}`, free of position bias (inverse
    propensity weighting, Joachims et al. 2017). Their mean with weights :math:`\theta_{k_i}`, the inverse of their
    variance, is clicks over expected examinations, :math:`C / E`. It is shrunk towards the mean rate :math:`\mu` of all
    pairs, which counts as :math:`m` examinations (``prior_strength``):

    .. math::
        \hat\gamma = \frac{C + m \mu}{E + m}, \qquad C = \sum_i c_i, \quad E = \sum_i \theta_{k_i}, \qquad
        \gamma \sim \mathrm{Gamma}(C + m \mu,\; E + m)

    Bounds are one-sided quantiles of the Gamma distribution, the posterior of a rate of Poisson counts. A passage is
    relevant if the lower bound is at least ``level``, it was clicked, and the rate is at least ``of_best`` times the
    highest rate of the question. It is a hard negative if it was never clicked, and the upper bound is at most
    ``negative_level``. A thumb up is a click. A thumb down is an impression of propensity 1 without a click. A short
    click is left out of both sums, and its passage is no hard negative.

    Args:
        impressions: Votes.
        propensities: Propensities of the positions, :math:`\theta`.
        settings: Thresholds.
        has_lists: Whether impressions have passages that were not clicked. If not, a clicked passage counts as shown in
            all impressions of its question, and nothing is a hard negative.
    """
    counts: dict[tuple[str, str], _Count] = defaultdict(_Count)
    asked: dict[str, int] = defaultdict(int)
    for impression in impressions:
        asked[impression.question] += 1
        for one in impression.shown:
            counts[impression.question, one.passage].add(one, propensities.at(one.position))
    pairs = sorted(counts)
    if not pairs:
        return []
    its = [counts[pair] for pair in pairs]
    clicks = np.array([one.clicks for one in its], dtype=np.float64)
    examined = np.array([one.examined for one in its])
    if not has_lists:
        examined = np.maximum(examined, [asked[question] for question, _ in pairs])
    mean = max(float(clicks.sum() / max(examined.sum(), 1e-9)), 1e-6)
    m = settings.prior_strength
    rate = (clicks + m * mean) / (examined + m)
    low, high = (_bound(clicks + m * mean, examined + m, p) for p in (1 - settings.confidence, settings.confidence))
    best: dict[str, float] = defaultdict(float)
    for (question, _), value, votes in zip(pairs, rate.tolist(), its, strict=True):
        best[question] = max(best[question], value if votes.clicks else 0.0)
    limits = np.array([best[question] * settings.of_best for question, _ in pairs])
    relevant = (clicks > 0) & (low >= settings.level) & (rate >= limits)
    touched = np.array([one.touched for one in its])
    never = (clicks == 0) & ~touched & (high <= settings.negative_level) & has_lists
    verdicts: Iterable[Verdict] = (
        "relevant" if is_one else "not relevant" if is_none else "undecided"
        for is_one, is_none in zip(relevant.tolist(), never.tolist(), strict=True)
    )
    rows = zip(pairs, its, examined.tolist(), rate.tolist(), low.tolist(), high.tolist(), verdicts, strict=True)
    return [
        Judgement(question, passage, one.impressions, one.clicks, seen, value, lower, upper, verdict)
        for (question, passage), one, seen, value, lower, upper, verdict in rows
    ]


def _bound(shape: NDArray[np.float64], rate: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    found: NDArray[np.float64] = gamma.ppf(p, shape, scale=1 / rate)
    return found
