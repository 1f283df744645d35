"""Settings of an import of feedback, and of a simulated log."""

from __future__ import annotations

from pydantic import Field, model_validator

from gnnretrieval.settings import Settings


class FeedbackSettings(Settings):
    """How a log is cleaned, split and judged.

    Attributes:
        most_per_minute: A session with more different questions within a minute counts as a bot.
        most_per_day: A session with more different questions within 24 hours counts as a bot.
        min_dwell: Seconds; a click with a shorter dwell time is no vote, neither for the passage nor against it.
        dev_share: Share of the impressions in the dev split, before test. 0: no dev split.
        test_share: Share of the impressions in the test split, the newest.
        prior_strength: Weight of the mean click rate in a passage's rate, in examinations.
        confidence: Probability with which a passage's click rate lies on the right side of a bound.
        level: Least lower bound of a relevant passage's click rate.
        of_background: Least lower bound of a relevant passage's click rate, as a multiple of the rate at which passages
            that are no answer are clicked.
        of_best: Least click rate of a relevant passage, as a share of the highest one of its question.
        negative_level: Largest upper bound of the click rate of a passage that was never clicked and becomes a hard
            negative.
    """

    most_per_minute: int = Field(20, ge=1)
    most_per_day: int = Field(300, ge=1)
    min_dwell: float = Field(10.0, ge=0)
    dev_share: float = Field(0.1, ge=0, lt=1)
    test_share: float = Field(0.1, ge=0, lt=1)
    prior_strength: float = Field(2.0, gt=0)
    confidence: float = Field(0.9, gt=0.5, lt=1)
    level: float = Field(0.02, ge=0)
    of_background: float = Field(1.5, ge=0)
    of_best: float = Field(0.7, ge=0, le=1)
    negative_level: float = Field(0.2, ge=0)

    @model_validator(mode="after")
    def _something_to_train_on(self) -> FeedbackSettings:
        if self.dev_share + self.test_share >= 1:
            raise ValueError("dev_share and test_share leave nothing for train: give smaller ones")
        return self


class SimulationSettings(Settings):
    """Behaviour of the users of a simulated search.

    Attributes:
        impressions: Number of lists that are shown.
        shown: Passages of a list.
        position_bias: Exponent of the position bias: position k is examined with probability 1 / k to this power.
        wrong_clicks: Share of the clicks that are on passages that are not relevant; with 1, clicks do not depend on
            relevance.
        attraction: Probability that an examined relevant passage is clicked.
        variation: How much the ranking varies from one list to the next: scale of the Gumbel noise that is added to the
            logarithm of the ranks. With 0, every list of a question is the same, and no passage changes its position.
        popularity: Exponent of Zipf's law, by which some questions are asked more often.
        days: Days that the log covers, from 2026-01-01.
        seed: Seed of everything that is random.
    """

    impressions: int = Field(10_000, ge=1)
    shown: int = Field(10, ge=1)
    position_bias: float = Field(1.0, ge=0)
    wrong_clicks: float = Field(0.1, ge=0, le=1)
    attraction: float = Field(0.9, gt=0, le=1)
    variation: float = Field(0.5, ge=0)
    popularity: float = Field(0.8, ge=0)
    days: float = Field(30.0, gt=0)
    seed: int = Field(0, ge=0)
