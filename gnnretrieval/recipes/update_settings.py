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
        evidence: Largest p-value (one-sided, paired) of the gain on held-out questions with which a new model is
            promoted.
        slice_evidence: Largest p-value of a loss on a slice of these questions with which a new model is refused.
        least: Least number of held-out questions with which a new model can be promoted.
    """

    keep_days: int | None = Field(None, ge=1)
    redact: bool = False
    versions: int = Field(5, ge=1)
    growth: float = Field(1.0, gt=0)
    replay: float = Field(3.0, ge=0)
    evidence: float = Field(0.01, gt=0, lt=0.5)
    slice_evidence: float = Field(0.05, gt=0, lt=0.5)
    least: int = Field(30, ge=2)
