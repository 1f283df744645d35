"""Settings of the nightly update of a search."""

from __future__ import annotations

from pydantic import Field

from gnnretrieval.settings import Settings


class UpdateSettings(Settings):
    """How a search is updated from its event logs (``gnnretrieval update``).

    Attributes:
        keep_days: Days that events are kept; older ones are deleted from the store. Not given: all are kept.
        redact: Mask e-mail addresses, phone, account and card numbers in questions before anything is written.
        versions: Versions that are kept, besides the promoted one.
        growth: Training begins from scratch when the labels have grown by this share since it last did; otherwise it
            goes on from the promoted model.
        replay: Old labels that a warm start trains on again, for each new one.
        evidence: Largest probability that the new model is no better, by its gain on held-out questions, with which it
            is promoted (:mod:`gnnretrieval.nightly.gate`).
        usual_gain: How large gains usually are, in RR@10 from 0 to 1: the standard deviation of the prior by which few
            questions with a large gain are not trusted.
        slice_evidence: Largest p-value of a loss on a slice of these questions with which a new model is refused.
        least: Least number of held-out questions with which a new model can be promoted.
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
