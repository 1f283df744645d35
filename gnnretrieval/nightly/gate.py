r"""The gate: whether a new model is promoted, by the newest held-out questions.

A few questions show a large gain only by luck, and every night tries again. So the gate does not trust the p-value
alone: it asks how probable it is that the new model is no better, if a gain :math:`\theta` is seldom larger than a few
points. With the sceptical prior :math:`\theta \sim N(0, \tau^2)` (Spiegelhalter, Freedman and Parmar 1994, *Bayesian
approaches to randomized trials*), a gain with the standard error :math:`\sigma` and the normal score :math:`z` of its
p-value leaves

.. math:: P(\theta \le 0) = \Phi\left(-z \, \tau \,/\, \sqrt{\tau^2 + \sigma^2}\right)

With many questions :math:`\sigma` is small, and this is the p-value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

from gnnretrieval.errors import counted
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.pages.reports import Figures
from gnnretrieval.recipes.update_settings import UpdateSettings
from gnnretrieval.resampling import SIGNS_AT_ONCE, corrected_ps
from gnnretrieval.training.gnn.ladder import reciprocal_ranks

_BOOTSTRAPS = 2000
_LEAST_OF_SLICE = 10  # questions; fewer prove nothing
_CLOSE = 12  # decimals to which gains are rounded, so that equal ranks give a gain of 0
_WHOLE = "among all passages"


class RanksOfModel(NamedTuple):
    """How a model ranks the held-out questions.

    Attributes:
        among_shown: ``(q,)`` RR@10 of each, among the passages that were shown for it.
        whole: ``(q,)`` RR@10 among all passages.
    """

    among_shown: NDArray[np.float64]
    whole: NDArray[np.float64]

    @classmethod
    def of(cls, questions: ClickedQuestions, vectors: Tensor, queries: Tensor) -> RanksOfModel:
        """How a model with these passage vectors ``(m, d)`` ranks questions with the vectors ``queries`` ``(q, d)``."""
        return cls(
            reciprocal_ranks(vectors, queries, questions.relevant, questions.shown),
            reciprocal_ranks(vectors, queries, questions.relevant),
        )


class SliceFigures(Figures):
    """Gain of the new model on some of the held-out questions."""

    name: str
    questions: int
    gain: float
    """Mean RR@10 of the new model minus that of the served one, by the questions' weights."""
    low: float
    """Lower end of the one-sided 95 % bootstrap interval of the gain."""
    high: float
    """Upper end of the other one-sided 95 % interval."""
    p_worse: float
    """One-sided p-value of a loss."""


class GateFigures(Figures):
    """What the gate measured and decided."""

    questions: int
    """The newest questions, which neither model was trained on."""
    served: float
    """Mean RR@10 of the served model among the shown passages. All means are weighted by the questions' weights."""
    candidate: float
    """Mean RR@10 of the new model."""
    gain: float
    low: float
    """Lower end of the one-sided 95 % bootstrap interval of the gain."""
    p: float
    """One-sided p-value of the gain, by Fisher's randomisation test, paired by question."""
    doubt: float = 1.0
    """Probability that the gain is not above 0, by the sceptical prior. 1 in reports of older versions."""
    slices: list[SliceFigures]
    whole: SliceFigures | None = None
    """The same comparison, if passages that nobody was shown count as wrong. None in reports of older versions."""
    promotes: bool
    reasons: list[str]
    """Sentences that say why."""


def judge_gain(
    candidate: RanksOfModel,
    served: RanksOfModel,
    slices: Mapping[str, NDArray[np.bool_]],
    settings: UpdateSettings,
    weights: NDArray[np.float64] | None = None,
) -> GateFigures:
    """Decide whether a new model is promoted.

    Among the passages that were shown, it must gain on the held-out questions with ``doubt <= evidence``
    (:mod:`gnnretrieval.nightly.gate`), and lose on none of the slices with ``p <= slice_evidence``. Condensed lists
    overrate a model that ranks quite differently (Sakai 2008), since the shown passages are the served model's own
    choice. So it must not lose among all passages either, where passages that nobody was shown count as wrong. If both
    models are equally good, the new one is promoted with the probability ``evidence`` or less.

    Args:
        candidate: RR@10 of each of ``q`` held-out questions by the new model.
        served: The same by the served model.
        slices: ``(q,)`` bool by name, True for the questions of a slice.
        settings: The levels.
        weights: ``(q,)`` weight of each question; None: all count alike.
    """
    weights = np.ones(len(served.whole)) if weights is None else weights
    gains = np.round(candidate.among_shown - served.among_shown, _CLOSE)
    whole = _slice_of(_WHOLE, np.round(candidate.whole - served.whole, _CLOSE), weights)
    by_slice = [_slice_of(name, gains[mask], weights[mask]) for name, mask in slices.items()]
    count, mean, p = len(gains), _mean(gains, weights), _p_of(gains, weights)
    doubt = _doubt(p, _standard_error(gains, weights), settings.usual_gain)
    # one objection to the gain as a whole is enough; after it, every slice that loses is named
    reasons = []
    if count < settings.least:
        reasons.append(few_questions(count, settings.least))
    elif not gains.any() and not whole.gain:
        reasons.append("The new model ranks all held-out questions as the served one does.")
    elif mean <= 0:
        reasons.append(f"It does not gain on the {counted(count, 'newest question')}: {100 * mean:+.1f} RR@10.")
    elif doubt > settings.evidence:
        reasons.append(
            f"Its gain on the {counted(count, 'newest question')}, {100 * mean:+.1f} RR@10, may be chance "
            f"(doubt {doubt:.2g}, wanted: {settings.evidence:g} or less; p = {p:.2g})."
        )
    elif whole.gain < 0:
        reasons.append(
            f"If what nobody was shown is wrong, it loses {-100 * whole.gain:.1f} RR@10 on these {count:,} questions."
        )
    reasons += [
        f"Questions {part.name} rank worse: {100 * part.gain:+.1f} RR@10 over {part.questions:,} "
        f"(p = {part.p_worse:.2g})."
        for part in by_slice
        if part.questions >= _LEAST_OF_SLICE and part.gain < 0 and part.p_worse <= settings.slice_evidence
    ]
    promotes = not reasons
    if promotes:
        reasons.append(
            f"It gains {100 * mean:+.1f} RR@10 on the {counted(count, 'newest question')} (doubt {doubt:.2g}, "
            f"p = {p:.2g}), and no slice loses by more than chance."
        )
    return GateFigures(
        questions=count,
        served=_mean(served.among_shown, weights),
        candidate=_mean(candidate.among_shown, weights),
        gain=mean,
        low=_interval(gains, weights)[0],
        p=p,
        doubt=doubt,
        slices=by_slice,
        whole=whole,
        promotes=promotes,
        reasons=reasons,
    )


def few_questions(count: int, least: int) -> str:
    """The reason not to promote anything, with too few held-out questions."""
    return f"There are {counted(count, 'held-out question')} with a label, and at least {least:,} are needed."


def popularity_slices(impressions: Sequence[int]) -> dict[str, NDArray[np.bool_]]:
    """Head, torso and tail: the questions of each third of the impressions, most frequent first.

    Args:
        impressions: Number of impressions of each question ``(q,)``.
    """
    counts = np.asarray(impressions, dtype=np.float64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]  # impressions of more frequent questions
    third = np.empty(len(counts), dtype=np.int64)
    third[order] = np.minimum(3 * before / max(float(counts.sum()), 1.0), 2).astype(np.int64)
    names = ("of the head", "of the torso", "of the tail")
    return {name: third == number for number, name in enumerate(names)}


def feedback_slices(relevant: Sequence[Sequence[int]], labelled: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Questions about passages with and without feedback.

    Args:
        relevant: Rows of each question's relevant passages.
        labelled: ``(m,)`` bool, whether a training question has a label on the passage.
    """
    warm = np.array([bool(labelled[list(rows)].any()) for rows in relevant], dtype=np.bool_)
    return {"about passages with feedback": warm, "about passages without feedback": ~warm}


def _slice_of(name: str, gains: NDArray[np.float64], weights: NDArray[np.float64]) -> SliceFigures:
    low, high = _interval(gains, weights)
    p = _p_of(-gains, weights)
    return SliceFigures(name=name, questions=len(gains), gain=_mean(gains, weights), low=low, high=high, p_worse=p)


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    return float(np.average(values, weights=weights)) if len(values) else 0.0


def _p_of(gains: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """One-sided p of a gain. A weight belongs to its question: flipping the sign of the gain keeps it."""
    return corrected_ps((weights * gains)[None])[0] if gains.any() else 1.0


def _doubt(p: float, error: float, usual: float) -> float:
    """Probability that a gain with this one-sided p and standard error is not above 0."""
    return float(ndtr(ndtri(p) * usual / np.hypot(usual, error))) if p < 1 else 1.0


def _standard_error(gains: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Standard error of the weighted mean, which is a ratio of two sums."""
    if not len(gains):
        return 0.0
    return float(np.sqrt((weights**2 * (gains - _mean(gains, weights)) ** 2).sum()) / weights.sum())


def _interval(gains: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """5 % and 95 % percentiles of the mean over bootstrap resamples."""
    if not len(gains) or not np.ptp(gains):
        mean = _mean(gains, weights)
        return mean, mean
    rng, count, means = np.random.default_rng(0), len(gains), list[float]()
    summed = np.stack([weights * gains, weights], axis=1)  # (q, 2)
    while len(means) < _BOOTSTRAPS:
        draws = min(max(SIGNS_AT_ONCE // count, 1), _BOOTSTRAPS - len(means))
        drawn = rng.multinomial(count, np.full(count, 1 / count), draws) @ summed  # (draws, 2)
        means += (drawn[:, 0] / drawn[:, 1]).tolist()
    low, high = np.quantile(means, (0.05, 0.95)).tolist()
    return low, high
