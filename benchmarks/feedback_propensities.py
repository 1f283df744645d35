"""Estimates of propensities from clicks, all relative to the first position; for benchmarks/feedback_import.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from gnnretrieval.feedback.propensities import Placed


def by_click_rate(entries: Placed, positions: int) -> NDArray[np.floating]:
    """Click rate of each position, as if all positions had equally good passages."""
    rate = np.bincount(entries.position, entries.clicked, positions) / np.bincount(
        entries.position, entries.shown, positions
    )
    return np.asarray(rate / rate[0])


def by_regression_em(entries: Placed, positions: int, steps: int = 300) -> NDArray[np.floating]:
    """Regression EM without features (Wang et al. 2018): EM of the position-based model, with Beta(0.3, 2) priors."""
    pair, position, n, c = entries
    theta, pairs = np.full(positions, 0.5), int(pair.max()) + 1
    gamma = np.full(pairs, 0.2)
    for _ in range(steps):
        neither = np.maximum(1 - theta[position] * gamma[pair], 1e-9)
        examined = theta[position] * (1 - gamma[pair]) / neither
        attracted = gamma[pair] * (1 - theta[position]) / neither
        theta = np.bincount(position, c + (n - c) * examined, positions) / np.bincount(position, n, positions)
        gamma = (np.bincount(pair, c + (n - c) * attracted, pairs) + 0.3) / (np.bincount(pair, n, pairs) + 2.3)
    return np.asarray(theta / theta[0])


def by_all_pairs(entries: Placed, positions: int) -> NDArray[np.floating]:
    """AllPairs (Agarwal et al. 2019, eq. 6): intervention harvesting with a click rate for each pair of positions."""
    pair, position, n, c = entries
    shape = (int(pair.max()) + 1, positions)
    both = sparse.csr_matrix((np.ones(len(pair)), (pair, position)), shape=shape)
    clicked, not_clicked = (
        (sparse.csr_matrix((rate, (pair, position)), shape=shape).T @ both).toarray() for rate in (c / n, 1 - c / n)
    )
    first, second = (part[~np.eye(positions, dtype=bool)] for part in np.indices((positions, positions)))
    place = np.minimum(first, second) * positions + np.maximum(first, second)

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        p, r = 1 / (1 + np.exp(-x[:positions])), 1 / (1 + np.exp(-x[positions:]))
        chance = np.clip(p[first] * r[place], 1e-9, 1 - 1e-9)
        yes, no = clicked[first, second], not_clicked[first, second]
        slope = -(yes / chance - no / (1 - chance)) * chance
        gradient = np.concatenate(
            [
                np.bincount(first, slope * (1 - p[first]), positions),
                np.bincount(place, slope * (1 - r[place]), positions**2),
            ]
        )
        return -float((yes * np.log(chance) + no * np.log(1 - chance)).sum()), gradient

    start = np.concatenate([np.zeros(positions), np.full(positions**2, -1.0)])
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 5000})
    p = 1 / (1 + np.exp(-fitted.x[:positions]))
    return np.asarray(p / p[0])


ESTIMATES: dict[str, Callable[[Placed, int], NDArray[np.floating]]] = {
    "click rate": by_click_rate,
    "regression EM": by_regression_em,
    "AllPairs": by_all_pairs,
}
