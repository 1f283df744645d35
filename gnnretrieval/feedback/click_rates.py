"""Votes on pairs of a question and a passage, and the two click rates that they are mixed from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.events import Shown
from gnnretrieval.feedback.propensities import Propensities
from gnnretrieval.pages.reports import Figures

_STEPS, _CLOSE = 1000, 1e-7  # of EM
_LEAST = 1e-6  # rate; its logarithm is taken


class Votes(NamedTuple):
    """Votes by pair of a question and a passage.

    Attributes:
        pairs: Question and passage id of each, sorted.
        impressions: ``(p,)`` how often the passage was shown for the question.
        clicks: ``(p,)`` how often it was clicked or got a thumb up, ``C``.
        examined: ``(p,)`` sum of the propensities of its impressions, ``E``.
        touched: ``(p,)`` bool, whether it was clicked for a short time.
        has_lists: Whether it has passages without a click.
    """

    pairs: list[tuple[str, str]]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    examined: NDArray[np.float64]
    touched: NDArray[np.bool_]
    has_lists: bool


class ClickRates(Figures):
    """Click rates of examined passages, as a mixture of two."""

    mean: float
    """Clicks over expected examinations, of all pairs."""
    background: float
    """Click rate of passages that are no answer: clicks by mistake or out of curiosity."""
    attractive: float
    """Click rate of the other passages."""
    share_attractive: float
    """Share of the pairs with this rate."""
    share_background_clicks: float
    """Share of the clicks that are on passages of the background."""


class _Count:
    __slots__ = ("clicks", "examined", "impressions", "touched")

    def __init__(self) -> None:
        self.impressions = self.clicks = 0
        self.examined = 0.0
        self.touched = False

    def add(self, passage: Shown, propensity: float) -> None:
        self.impressions += 1
        if passage.thumb < 0:
            self.examined += 1.0  # a thumb down was certainly given after a look
        elif passage.dwell is not None:  # only a short click keeps its dwell time
            self.touched = True
        else:
            self.clicks += passage.clicked
            self.examined += propensity


def count_votes(impressions: Sequence[Impression], propensities: Propensities, has_lists: bool = True) -> Votes:
    """Votes of impressions, freed of position bias.

    A thumb up is a click. A thumb down is an impression of propensity 1 without a click. A short click is left out.

    Args:
        impressions: The impressions.
        propensities: Propensities of the positions.
        has_lists: Whether impressions have passages that were not clicked. If not, a clicked passage counts as examined
            in all impressions of its question.
    """
    counts: dict[tuple[str, str], _Count] = defaultdict(_Count)
    impressions_of: Counter[str] = Counter()
    for impression in impressions:
        impressions_of[impression.question] += 1
        for passage in impression.shown:
            counts[impression.question, passage.passage].add(passage, propensities.at(passage.position))
    pairs = sorted(counts)
    sorted_counts = [counts[pair] for pair in pairs]
    examined = np.array([count.examined for count in sorted_counts], dtype=np.float64)
    if not has_lists:
        examined = np.maximum(examined, np.array([impressions_of[question] for question, _ in pairs], dtype=np.float64))
    return Votes(
        pairs,
        np.array([count.impressions for count in sorted_counts], dtype=np.int64),
        np.array([count.clicks for count in sorted_counts], dtype=np.int64),
        examined,
        np.array([count.touched for count in sorted_counts], dtype=np.bool_),
        has_lists,
    )


def click_rates(votes: Votes) -> ClickRates:
    r"""The two click rates of examined passages that explain the votes best.

    Some passages attract clicks, and the others get a few by mistake. With :math:`z_{qd}` for which of the two a pair
    is, :math:`C_{qd} \sim \mathrm{Poisson}(E_{qd}\, \lambda_{z_{qd}})` and :math:`P(z = 1) = \pi`. EM finds
    :math:`\lambda_0` (``background``), :math:`\lambda_1` (``attractive``) and :math:`\pi`: the two-groups model of
    empirical Bayes (Efron 2008). If clicks do not depend on the passage, both rates are equal. Without passages that
    were not clicked nothing tells them apart, and the background is 0.

    Args:
        votes: Votes, for example of the training period.
    """
    clicks, examined = votes.clicks, votes.examined
    total, seen = float(clicks.sum()), float(examined.sum())
    mean = max(total / seen, _LEAST) if seen else _LEAST
    if not total or not votes.has_lists:
        return ClickRates(mean=mean, background=0.0, attractive=mean, share_attractive=1.0, share_background_clicks=0.0)
    share, low, high = 0.1, mean / 5, 5 * mean
    attracts = np.zeros(len(clicks))  # P(z = 1 | C, E)
    # EM: which of the two groups each pair is in (E), then the rates and the share of each group (M).
    for _ in range(_STEPS):
        odds = np.log(share / (1 - share)) + clicks * np.log(high / max(low, _LEAST)) - examined * (high - low)
        attracts = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        before = share, low, high
        share = float(np.clip(attracts.mean(), 1e-6, 1 - 1e-6))
        high = max(float((attracts * clicks).sum() / max(float((attracts * examined).sum()), _LEAST)), _LEAST)
        low = float(((1 - attracts) * clicks).sum() / max(float(((1 - attracts) * examined).sum()), _LEAST))
        if max(abs(old - new) for old, new in zip(before, (share, low, high), strict=True)) < _CLOSE:
            break
    return ClickRates(
        mean=mean,
        background=min(low, high),
        attractive=max(low, high),
        share_attractive=share,
        share_background_clicks=float(((1 - attracts) * clicks).sum()) / total,
    )
