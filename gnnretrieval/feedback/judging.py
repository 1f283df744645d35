"""Judgements from votes: click rates without position bias, their bounds, and relevance by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, gdtrib, pdtrc

from gnnretrieval.feedback.click_rates import ClickRates, Votes
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
        verdict: Whether the passage is relevant.
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


def judge(votes: Votes, rates: ClickRates, settings: FeedbackSettings) -> list[Judgement]:
    r"""Judgements of all pairs of a question and a passage, sorted by question and passage.

    A click at position :math:`k` estimates the click rate by :math:`c_i / \theta_{k_i}`, free of position bias (inverse
    propensity weighting, Joachims et al. 2017). Their mean with weights :math:`\theta_{k_i}`, the inverse of their
    variance, is clicks over expected examinations, :math:`C / E`. It is shrunk towards the mean rate :math:`\mu` of all
    pairs, which counts as :math:`m` examinations (``prior_strength``):

    .. math::
        \hat\gamma = \frac{C + m \mu}{E + m}, \qquad C = \sum_i c_i, \quad E = \sum_i \theta_{k_i}, \qquad
        \gamma \sim \mathrm{Gamma}(C + m \mu,\; E + m)

    Bounds are one-sided quantiles of the Gamma distribution, the posterior of a rate of Poisson counts. A passage is
    relevant if it was clicked, the lower bound is at least ``level`` and at least ``of_background`` times the
    background rate, and the rate is at least ``of_best`` times the highest rate of the question. It is a hard negative
    if it was never clicked, not even for a short time, and the upper bound is at most ``negative_level``.

    Args:
        votes: Votes.
        rates: Mean and background rate, for example of the training period.
        settings: Thresholds.
    """
    pairs, clicks = votes.pairs, votes.clicks
    shape = clicks + settings.prior_strength * rates.mean
    weight = votes.examined + settings.prior_strength
    rate = shape / weight
    low, high = (gammaincinv(shape, p) / weight for p in (1 - settings.confidence, settings.confidence))
    best: dict[str, float] = defaultdict(float)
    for (question, _), value, count in zip(pairs, rate.tolist(), clicks.tolist(), strict=True):
        best[question] = max(best[question], value if count else 0.0)
    near_best = rate >= np.array([best[question] * settings.of_best for question, _ in pairs])
    relevant = (clicks > 0) & (low >= _level(rates, settings)) & near_best
    never = (clicks == 0) & ~votes.touched & (high <= settings.negative_level) & votes.has_lists
    verdicts: Iterable[Verdict] = (
        "relevant" if is_relevant else "not relevant" if is_negative else "undecided"
        for is_relevant, is_negative in zip(relevant.tolist(), never.tolist(), strict=True)
    )
    columns = (votes.impressions, clicks, votes.examined, rate, low, high)
    rows = zip(pairs, *(column.tolist() for column in columns), verdicts, strict=True)
    return [Judgement(*pair, *figures) for pair, *figures in rows]


def label_chances(examined: NDArray[np.float64], rates: ClickRates, settings: FeedbackSettings) -> NDArray[np.float64]:
    r"""Probability ``(n,)`` that :func:`judge` calls an attractive passage relevant, from how often it was examined.

    It needs the least number of clicks :math:`c` at which its lower bound is high enough, and
    :math:`C \sim \mathrm{Poisson}(E \lambda_1)`. A passage that was shown at low positions seldom gets so many. The
    condition ``of_best`` is left out.

    Args:
        examined: ``(n,)`` expected examinations ``E``.
        rates: Rates of the training period; ``attractive`` is :math:`\lambda_1`.
        settings: Thresholds of the judgements.
    """
    weight = examined + settings.prior_strength
    # The shape of the Gamma distribution that has the level as its lower bound.
    shape = gdtrib(1.0, 1 - settings.confidence, _level(rates, settings) * weight)
    needed = np.maximum(np.ceil(shape - settings.prior_strength * rates.mean), 1)
    chances: NDArray[np.float64] = pdtrc(needed - 1, rates.attractive * examined)
    return chances


def _level(rates: ClickRates, settings: FeedbackSettings) -> float:
    """Least lower bound of a relevant passage's click rate."""
    return max(settings.level, settings.of_background * rates.background)
