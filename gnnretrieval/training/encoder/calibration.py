"""Platt scaling of a cross-encoder's probabilities, and measures of their quality."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from gnnretrieval.errors import GnnRetrievalError


class Calibration(NamedTuple):
    """``probability = sigmoid(slope · logit + intercept)``.

    Attributes:
        slope: Factor on the logit, above 0, so that the ranking does not change.
        intercept: Added to the scaled logit.
        fitted: False if no fit was possible; slope and intercept are then those of the identity.
    """

    slope: float
    intercept: float
    fitted: bool = True


IDENTITY = Calibration(1.0, 0.0, fitted=False)


def fit_calibration(logits: ArrayLike, labels: ArrayLike) -> Calibration:
    """Fit slope and intercept by maximum likelihood (Platt 1999).

    The smoothed targets ``(N₊ + 1) / (N₊ + 2)`` and ``1 / (N₋ + 2)`` keep the fit finite if a threshold separates the
    classes.

    Args:
        logits: ``(n,)`` log-odds of the scorer: its logit, or the second label's logit minus the first's.
        labels: ``(n,)`` bool, True if the pair is relevant.

    Returns:
        The fit; :data:`IDENTITY` if a class is missing, all logits are equal, or relevant pairs have the lower logits
        (the slope would not be above 0).

    Raises:
        GnnRetrievalError: A logit is not finite, or logits and labels differ in number.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    x, positive = _of_one_length(logits, labels, "logit")
    count = int(positive.sum())
    deviation = float(x.std()) if len(x) else 0.0
    if count in (0, len(x)) or deviation == 0:
        return IDENTITY
    targets = np.where(positive, (count + 1) / (count + 2), 1 / (len(x) - count + 2))
    mean = float(x.mean())
    z = (x - mean) / deviation  # standardised, so that the minimiser works for logits of any size

    def mean_loss(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = line[0] * z + line[1]
        errors = expit(margins) - targets
        loss = float((np.logaddexp(0.0, margins) - targets * margins).mean())
        return loss, np.array([(errors * z).mean(), errors.mean()])

    steepness, height = minimize(mean_loss, np.array([1.0, 0.0]), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    if steepness <= 0:
        return IDENTITY
    return Calibration(float(steepness / deviation), float(height - steepness * mean / deviation))


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> float:
    """Mean gap between the share of relevant pairs and their mean probability, over bins (Guo et al. 2017, eq. 3).

    Args:
        probabilities: ``(n,)``, probability that the pair is relevant.
        labels: ``(n,)`` bool, True if the pair is relevant.
        bins: Number of equal bins from 0 to 1; the last one includes 1.

    Returns:
        A value from 0 (calibrated) to 1; each bin has the weight of its number of pairs.

    Raises:
        GnnRetrievalError: There are no probabilities or bins, a probability is not between 0 and 1, or probabilities
            and labels differ in number.
    """
    x, positive = _of_one_length(probabilities, labels, "probability")
    if bins < 1:
        raise GnnRetrievalError(f"bins is {bins}; the calibration error needs at least 1.")
    if not len(x) or x.min() < 0 or x.max() > 1:
        given = f"one is {x[(x < 0) | (x > 1)][0]:g}" if len(x) else "there are none"
        raise GnnRetrievalError(f"the calibration error needs probabilities from 0 to 1, but {given}.")
    bin_of = np.minimum((x * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(bin_of, weights=positive - x, minlength=bins)  # (bins,) pairs · (share - probability)
    return float(np.abs(gaps).sum() / len(x))


def area_under_curve(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve: probability that a relevant pair scores higher than an irrelevant one; ties count half.

    Args:
        scores: ``(n,)``.
        labels: ``(n,)`` bool, True if the pair is relevant.

    Returns:
        A value from 0 to 1; NaN if a class is missing.

    Raises:
        GnnRetrievalError: A score is not finite, or scores and labels differ in number.
    """
    x, positive = _of_one_length(scores, labels, "score")
    count = int(positive.sum())
    if count in (0, len(x)):
        return float("nan")
    from scipy.stats import rankdata

    above = float(rankdata(x)[positive.astype(bool)].sum()) - count * (count + 1) / 2
    return above / (count * (len(x) - count))


@torch.no_grad()
def apply_calibration(model: nn.Module, calibration: Calibration) -> None:
    """Write a calibration into the last ``Linear`` of a transformers sequence classifier, in place.

    With one label the layer becomes ``W · slope`` and ``b · slope + intercept``. With two labels the intercept is added
    to the second one, so that the difference of the logits is ``slope · margin + intercept``.

    Raises:
        GnnRetrievalError: The last ``Linear`` is not found, does not have one or two labels, or has no bias.
    """
    last = _last_linear(model)
    last.weight.mul_(calibration.slope)
    last.bias.mul_(calibration.slope)
    last.bias[-1] += calibration.intercept


def _last_linear(model: nn.Module) -> nn.Linear:
    """``classifier`` of BERT-like, ``classifier.out_proj`` of RoBERTa-like, ``score`` of other classifiers."""
    head: Any = getattr(model, "classifier", None)
    places = (head, getattr(head, "out_proj", None), getattr(model, "score", None))
    last = next((place for place in places if isinstance(place, nn.Linear)), None)
    name = type(model).__name__
    if last is None:
        raise GnnRetrievalError(
            f"{name} has no Linear called classifier, classifier.out_proj or score: its probabilities cannot be "
            "calibrated. Train without calibration (calibrate = false)."
        )
    if last.out_features not in (1, 2) or last.bias is None:
        what = "no bias" if last.bias is None else f"{last.out_features} labels"
        raise GnnRetrievalError(
            f"{name}'s last layer has {what}: calibration needs a bias and one or two labels. "
            "Train without calibration (calibrate = false)."
        )
    return last


def _of_one_length(values: ArrayLike, labels: ArrayLike, what: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    x, positive = np.asarray(values, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    if x.ndim != 1 or x.shape != positive.shape:
        raise GnnRetrievalError(
            f"calibration needs one label for each {what}, but the shapes are {x.shape} and {positive.shape}."
        )
    if not np.isfinite(x).all():
        raise GnnRetrievalError(f"a {what} to calibrate is not a finite number: the scorer is broken.")
    return x, positive
