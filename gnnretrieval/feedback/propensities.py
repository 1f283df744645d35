"""Position bias: how often a position is examined against the first, estimated from the log's own swaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.pages.reports import Figures

MOST = 100  # positions; lower ones count as the last
_STEPS = 100
_PRIOR = 1.0  # clicks that two neighbouring positions share: without a swap between them, they stay alike
_Z = 1.96


class PositionFigures(Figures):
    """A position of the shown lists."""

    position: int
    """From 1."""
    impressions: int
    clicks: int
    swapped: int
    """Clicks on passages that were shown for the same question at another position too."""
    propensity: float
    """Probability of examination, as a multiple of the first position's."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""


class Propensities(NamedTuple):
    """Propensities of the positions.

    Attributes:
        figures: One for each position from 1; empty where the log has no positions.
    """

    figures: tuple[PositionFigures, ...]

    def at(self, position: int | None) -> float:
        """The propensity of a position; 1 where it is not known, the last one's below the last one."""
        if position is None or not self.figures:
            return 1.0
        return self.figures[min(position, len(self.figures)) - 1].propensity

    @property
    def is_estimated(self) -> bool:
        """Whether the log has swaps with clicks, from which position bias can be estimated."""
        return any(place.swapped for place in self.figures)


class Placed(NamedTuple):
    """How often question and passage pairs were shown and clicked at each position; one entry a pair and position.

    Attributes:
        pair: ``(e,)`` number of the pair.
        position: ``(e,)`` from 0.
        shown: ``(e,)`` impressions.
        clicked: ``(e,)`` clicks.
    """

    pair: NDArray[np.int64]
    position: NDArray[np.int64]
    shown: NDArray[np.float64]
    clicked: NDArray[np.float64]


def placed(impressions: Sequence[Impression]) -> Placed:
    """Impressions and clicks by pair and position, without passages that have no position. A short click is a click."""
    numbers: dict[tuple[str, str], int] = {}
    rows = [
        (
            numbers.setdefault((impression.question, passage.passage), len(numbers)),
            min(passage.position, MOST) - 1,
            passage.clicked,
        )
        for impression in impressions
        for passage in impression.shown
        if passage.position is not None
    ]
    pair, position, clicked = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    entries, number = np.unique(pair * MOST + position, return_inverse=True)
    return Placed(
        entries // MOST,
        entries % MOST,
        np.bincount(number, minlength=len(entries)).astype(np.float64),
        np.bincount(number, clicked.astype(np.float64), len(entries)).astype(np.float64),
    )


def estimate_propensities(impressions: Sequence[Impression]) -> Propensities:
    r"""Propensities of a position-based model by intervention harvesting (Agarwal et al. 2019, WSDM).

    In the position-based model, a click is an examination of the position and an attractive passage:
    :math:`P(C = 1 \mid q, d, k) = \theta_k\, \gamma_{qd}` (Craswell et al. 2008). A passage that the log shows for one
    question at several positions is an experiment: its attraction :math:`\gamma_{qd}` is the same at each. With
    :math:`n_{qdk}` impressions and :math:`c_{qdk}` clicks there, and :math:`C_{qd} = \sum_k c_{qdk}`, the share of the
    pair's clicks that fall on a position does not depend on the attraction, and :math:`\theta` maximises

    .. math::
        \sum_{q,d,k} c_{qdk} \ln \frac{n_{qdk}\, \theta_k}{\sum_{k'} n_{qdk'}\, \theta_{k'}}.

    This is the conditional likelihood of a Poisson model with a fixed effect for each pair (Hausman, Hall and Griliches
    1984). Its gradient has mean 0 at the true :math:`\theta` for clicks of any distribution with these means, and pairs
    that were shown a few times do no harm, whereas the estimates of :math:`\gamma_{qd}` that regression EM needs (Wang
    et al. 2018) are then poor (benchmarks/feedback_import.py compares them). Neighbouring positions share one
    further click, half each, so that propensities without evidence are those of the position above: a log without swaps
    gets :math:`\theta = 1`, which is no correction.

    Args:
        impressions: Votes, for example of the training period.
    """
    entries = placed(impressions)
    if not len(entries.pair):
        return Propensities(())
    positions = int(entries.position.max()) + 1
    theta, low, high, swapped = _fitted(entries, positions)
    shown = np.bincount(entries.position, entries.shown, positions)
    clicks = np.bincount(entries.position, entries.clicked, positions)
    return Propensities(
        tuple(
            PositionFigures(
                position=k + 1,
                impressions=int(shown[k]),
                clicks=int(clicks[k]),
                swapped=int(swapped[k]),
                propensity=float(theta[k]),
                low=float(low[k]),
                high=float(high[k]),
            )
            for k in range(positions)
        )
    )


def _fitted(entries: Placed, positions: int) -> tuple[NDArray[np.floating], ...]:
    """Propensities, the ends of their intervals, and the clicks that they follow from, ``(K,)`` each."""
    swaps = _swaps(entries)
    swapped = np.bincount(swaps.position, swaps.clicked, positions).astype(np.float64)
    if positions == 1:
        return np.ones(1), np.ones(1), np.ones(1), swapped
    log_theta, hessian = _maximised(_with_prior(swaps, positions), positions)
    deviation = np.zeros(positions)
    deviation[1:] = np.sqrt(np.diag(np.linalg.inv(hessian[1:, 1:])))
    return np.exp(log_theta), np.exp(log_theta - _Z * deviation), np.exp(log_theta + _Z * deviation), swapped


def _swaps(entries: Placed) -> Placed:
    """The entries of pairs with a click that were shown at several positions: only these tell of bias."""
    pair, position, shown, clicked = entries
    has_clicks = np.bincount(pair, clicked)[pair] > 0
    is_used = (np.bincount(pair)[pair] > 1) & has_clicks
    numbers = np.unique(pair[is_used], return_inverse=True)[1]
    return Placed(numbers, position[is_used], shown[is_used], clicked[is_used])


def _with_prior(entries: Placed, positions: int) -> Placed:
    """The entries, and a pair more for each two neighbouring positions, shown once and clicked half at each."""
    first, steps = int(entries.pair.max(initial=-1)) + 1, np.arange(positions - 1)
    return Placed(
        np.concatenate([entries.pair, np.repeat(first + steps, 2)]),
        np.concatenate([entries.position, np.stack([steps, steps + 1], axis=1).ravel()]),
        np.concatenate([entries.shown, np.ones(2 * len(steps))]),
        np.concatenate([entries.clicked, np.full(2 * len(steps), _PRIOR / 2)]),
    )


def _maximised(entries: Placed, positions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The logarithms of the propensities at the maximum ``(K,)``, and minus the Hessian there ``(K, K)``."""
    pair, position, n, c = entries
    pairs = int(pair.max()) + 1
    clicks_of = np.bincount(pair, c, pairs)
    by_position = np.bincount(position, c, positions)

    def shares(log_theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Expected share of a pair's clicks by entry, and the likelihood."""
        weight = n * np.exp(log_theta)[position]
        share = weight / np.bincount(pair, weight, pairs)[pair]
        return share, float(c @ np.log(share))

    log_theta = np.zeros(positions)
    share, likelihood = shares(log_theta)
    hessian = np.zeros((positions, positions))
    for _ in range(_STEPS):  # Newton's method: the likelihood is concave in log θ
        expected = np.bincount(position, clicks_of[pair] * share, positions)
        matrix = sparse.csr_matrix((share, (pair, position)), shape=(pairs, positions))
        hessian = np.diag(expected) - (matrix.T @ matrix.multiply(clicks_of[:, None])).toarray()
        if np.abs(by_position - expected).max() < 1e-8 * max(1.0, by_position.max()):
            break
        step = np.zeros(positions)
        step[1:] = np.linalg.solve(hessian[1:, 1:], (by_position - expected)[1:])  # θ of the first position is 1
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        while True:
            new_share, new_likelihood = shares(log_theta + step)
            if new_likelihood >= likelihood - 1e-9 or np.abs(step).max() < 1e-12:
                break
            step /= 2
        log_theta, share, likelihood = log_theta + step, new_share, new_likelihood
    return log_theta, hessian
