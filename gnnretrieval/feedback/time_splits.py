"""Splits by time: train before, dev and test after; and how far later questions drift from earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gnnretrieval.errors import InputError
from gnnretrieval.feedback.cleaning import Impression
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.pages.reports import Figures

TRAIN, DEV, TEST = "train", "dev", "test"


class Boundaries(NamedTuple):
    """Times at which splits begin, in seconds since 1970.

    Attributes:
        dev: Start of dev; equal to ``test`` if there is no dev split.
        test: Start of test; infinity if there is no test split.
    """

    dev: float
    test: float

    def split_of(self, time: float) -> str:
        """The split of a time."""
        return TRAIN if time < self.dev else DEV if time < self.test else TEST


class DriftFigures(Figures):
    """Questions, clicks and passages of a split that are new, against all earlier splits."""

    split: str
    since: str
    """Start of the split, in UTC."""
    impressions: int
    """All of the period, including those of earlier questions."""
    questions: int
    new_questions: int
    """Questions that were not asked before; the split has only these."""
    share_new: float
    """Share of the impressions of new questions."""
    clicks: int
    share_clicks_on_unclicked: float
    """Share of the clicks that are on passages without an earlier click."""
    share_clicks_on_unshown: float
    """Share of the clicks that are on passages that were not shown before: new ones, or new topics."""
    passages: int
    """Passages that were shown."""
    new_passages: int
    """Passages that were not shown before."""


class Split(NamedTuple):
    """The impressions of all splits.

    Attributes:
        by_name: Impressions by split; no question is in two splits.
        later: Impressions that are left out: of a question that an earlier split has.
    """

    by_name: dict[str, list[Impression]]
    later: int


def boundaries(
    impressions: Sequence[Impression],
    settings: FeedbackSettings,
    dev_from: float | None = None,
    test_from: float | None = None,
) -> Boundaries:
    """Where the splits begin: at the given times, or so that dev and test have their shares of the impressions.

    Args:
        impressions: Votes in the order of their times.
        settings: The shares.
        dev_from: Start of dev, in seconds since 1970.
        test_from: Start of test.

    Raises:
        InputError: dev does not begin before test.
    """
    count = len(impressions)

    def start(share: float) -> float:
        """Time of the first impression of the newest ``share``."""
        place = count - round(share * count)
        return impressions[place].time if place < count else float("inf")

    test = start(settings.test_share) if test_from is None else test_from
    if dev_from is not None:
        dev = dev_from
    elif test_from is None:
        dev = start(settings.dev_share + settings.test_share)
    else:
        before = [impression for impression in impressions if impression.time < test]
        place = len(before) - round(settings.dev_share * count)
        dev = before[max(place, 0)].time if before and place < len(before) else test
    if dev > test:
        raise InputError("dev begins after test: give an earlier --dev-from, or a later --test-from.")
    return Boundaries(dev, test)


def split_by_time(impressions: Sequence[Impression], at: Boundaries) -> Split:
    """Impressions by split. A question belongs to the split in which it was asked first.

    Its later impressions are left out: judgements of train know nothing of later times, and no question that was seen
    in training is in dev or test.

    Args:
        impressions: Votes in the order of their times.
        at: Starts of dev and test.
    """
    first: dict[str, str] = {}
    by_name: dict[str, list[Impression]] = {TRAIN: [], DEV: [], TEST: []}
    later = 0
    for impression in impressions:
        name = at.split_of(impression.time)
        if first.setdefault(impression.question, name) == name:
            by_name[name].append(impression)
        else:
            later += 1
    return Split(by_name, later)


def drift(impressions: Sequence[Impression], at: Boundaries) -> list[DriftFigures]:
    """What is new in dev and in test, each against all earlier impressions.

    Args:
        impressions: Votes in the order of their times.
        at: Starts of dev and test.
    """
    parts: Mapping[str, list[Impression]] = {TRAIN: [], DEV: [], TEST: []}
    for impression in impressions:
        parts[at.split_of(impression.time)].append(impression)
    # Of all earlier splits: questions, and passages that were shown and clicked.
    known: set[str] = set()
    shown: set[str] = set()
    clicked: set[str] = set()
    figures = []
    for name, part in parts.items():
        questions = {impression.question for impression in part}
        passages = {passage.passage for impression in part for passage in impression.shown}
        clicks = [passage.passage for impression in part for passage in impression.shown if passage.clicked]
        if part and name != TRAIN:
            figures.append(
                DriftFigures(
                    split=name,
                    since=as_date(at.dev if name == DEV else at.test),
                    impressions=len(part),
                    questions=len(questions),
                    new_questions=len(questions - known),
                    share_new=sum(impression.question not in known for impression in part) / len(part),
                    clicks=len(clicks),
                    share_clicks_on_unclicked=_share_new(clicks, clicked),
                    share_clicks_on_unshown=_share_new(clicks, shown),
                    passages=len(passages),
                    new_passages=len(passages - shown),
                )
            )
        known |= questions
        shown |= passages
        clicked.update(clicks)
    return figures


def _share_new(passages: Sequence[str], known: set[str]) -> float:
    """Share of ``passages`` that are not in ``known``."""
    return sum(passage not in known for passage in passages) / len(passages) if passages else 0.0


def as_date(time: float) -> str:
    """A time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
