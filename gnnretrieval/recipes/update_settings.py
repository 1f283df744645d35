"""Settings of the nightly update of a search."""

from __future__ import annotations

from pydantic import Field

from gnnretrieval.settings import Settings


class UpdateSettings(Settings):
    """How a search is updated from its event logs (``gnnretrieval update``).

    Attributes:
        keep_days: Days that events are kept; older ones are deleted from the store. Not given: all are kept.
        redact: Mask e-mail addresses, phone, account and card numbers in questions before anything is written.
        versions: Number of versions to keep, besides the promoted one.
        growth: Training begins from scratch when the labels have grown by this share since it last did; otherwise it
            goes on from the promoted model.
        replay: Old labels that a warm start trains on again, for each new one.
        evidence: A new model is promoted if the probability that it is no better, by its gain on held-out questions, is
            at most this (:mod:`gnnretrieval.nightly.gate`).
        usual_gain: How large gains usually are, in RR@10 from 0 to 1: the standard deviation of the prior, by which a
            large gain on few questions is not trusted.
        slice_evidence: A new model is refused if a loss on a slice of these questions has at most this p-value.
        least: Fewest held-out questions that can promote a new model.
    """

    keep_days: int | None = Field(None, ge=1)
    redact: bool = False
    versions: int = Field(5, ge=1)
    growth: float = Field(1.0, gt=0)
    replay: float = Field(3.0, ge=0)
    evidence: float = Field(0.02, gt=0, lt=0.5)
    usual_gain: float = Field(0.03, gt=0)
    slice_evidence: float = Field(0.05, gt=0, lt=0.5)
    least: int = Field(30, ge=2)
