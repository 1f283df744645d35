"""Cleaning of events: bots, old events and repetitions go, and one impression a session and question stays."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.feedback.events import Event, Shown
from gnnretrieval.feedback.redaction import redacted
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.feedback.values import WITHDRAWN
from gnnretrieval.pages.reports import Figures

MINUTE, DAY = 60.0, 86400.0
_OF_ROWS = "\nat "  # how the vote of rows without a session is named, before their time
_OF_THE_REST = ("impressions", "sessions", "questions", "spellings")  # figures of the impressions that are left


class CleaningFigures(Figures):
    """What came in, and what was dropped and why, in the order of the checks."""

    events: int
    """Lines of the logs."""
    too_old: int
    """Events before the retention's limit."""
    without_question: int
    """Events with an empty question."""
    bot_sessions: int
    """Sessions with too many questions a minute or a day."""
    bot_events: int
    """Their events."""
    clicks_outside: int
    """Clicks and thumbs on passages that were not in the event's list, and thumbs that name none."""
    unknown_passages: int
    """Passages of events that are not among the given passages."""
    without_passage: int
    """Events without a known passage."""
    repeated: int
    """Events that repeat a question of their session: these count as one."""
    joined: int = 0
    """Rows without a session that repeat a passage of their question and time: they are of several lists, which cannot
    be told apart and count as one. 0 in reports of older versions."""
    short_clicks: int
    """Clicks with a dwell time below the limit: no votes, neither for the passage nor against it."""
    redacted_questions: int
    """Events with a question in which personal data was masked."""
    impressions: int
    """Votes that are left: one a session and question."""
    sessions: int
    """Sessions of these; a list without a session counts as one."""
    questions: int
    """Questions of these by normalised text."""
    spellings: int
    """Questions of these by unchanged text."""


class Impression(NamedTuple):
    """The passages that a session was shown for a question, and its clicks and thumbs on them: one vote.

    Attributes:
        question: The normalised text.
        time: Seconds since 1970, of the first of its events.
        shown: The passages, sorted by id, each with its highest position.
    """

    question: str
    time: float
    shown: tuple[Shown, ...]


class Cleaned(NamedTuple):
    """Impressions, and texts and ids of their questions.

    Attributes:
        impressions: In the order of their times.
        texts: The most frequent spelling of each question, by normalised text.
        ids: Ids of each question in the logs.
        figures: What was dropped.
    """

    impressions: list[Impression]
    texts: dict[str, str]
    ids: dict[str, list[str]]
    figures: CleaningFigures


def question_key(text: str) -> str:
    """The form by which questions are merged: NFKC, casefolded, without surplus white space and end punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()  # which may leave the form NFKC again
    return normalised(unicodedata.normalize("NFKC", folded))


def clean(
    events: Iterable[Event],
    passages: Collection[str],
    settings: FeedbackSettings,
    *,
    redact: bool = False,
    keep_from: float | None = None,
) -> Cleaned:
    """The impressions of events, the same for events in any order.

    Args:
        events: Lines of logs.
        passages: Ids of the known passages.
        settings: Limits.
        redact: Mask personal data in questions, before they are compared (:func:`.redaction.redacted`).
        keep_from: Seconds since 1970; events before are dropped. None: all are kept.
    """
    counts: Counter[str] = Counter()
    same: dict[Shown, Shown] = {}  # equal records share memory: most are a passage at a usual position, not clicked
    kept = [*_with_keys(events, redact, keep_from, same, counts)]
    bots = bot_sessions(kept, settings)
    counts["bot_sessions"] = len(bots)
    votes = _votes(kept, bots, passages, counts)
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    ids: dict[str, set[str]] = defaultdict(set)
    impressions = []
    for (session, key), vote in votes.items():
        if session.startswith(_OF_ROWS):
            counts["joined"] += _repeats(vote)
        counts["repeated"] += len({(event.time, event.question) for event in vote}) - 1
        merged, short = _merged(vote, settings.min_dwell)
        counts["short_clicks"] += short
        shown = tuple(same.setdefault(passage, passage) for passage in merged)
        impressions.append(Impression(key, min(event.time for event in vote), shown))
        texts[key].update({" ".join(event.question.split()) for event in vote})
        ids[key].update(event.question_id for event in vote if event.question_id)
    impressions.sort(key=lambda impression: (impression.time, impression.question, repr(impression.shown)))
    names = [name for name in CleaningFigures.model_fields if name not in _OF_THE_REST]
    figures = CleaningFigures(
        **{name: counts[name] for name in names},
        impressions=len(impressions),
        sessions=len({session for session, _ in votes}),
        questions=len(texts),
        spellings=sum(map(len, texts.values())),
    )
    # Of equally frequent spellings the first in the alphabet, so that the order of the events does not matter.
    usual = {key: min(counted, key=lambda text: (-counted[text], text)) for key, counted in sorted(texts.items())}
    return Cleaned(impressions, usual, {key: sorted(log_ids) for key, log_ids in ids.items() if log_ids}, figures)


def _with_keys(
    events: Iterable[Event], redact: bool, keep_from: float | None, same: dict[Shown, Shown], counts: Counter[str]
) -> Iterator[tuple[str, Event]]:
    """Events with a question that are not too old, each with its normalised question; counts the others."""
    for event in events:
        counts["events"] += 1
        if keep_from is not None and event.time < keep_from:
            counts["too_old"] += 1
            continue
        if redact:
            masked = redacted(event.question)
            counts["redacted_questions"] += masked != unicodedata.normalize("NFKC", event.question)
            event = event._replace(question=masked, question_id=redacted(event.question_id))
        key = question_key(event.question)
        if key:
            yield key, event._replace(shown=tuple(same.setdefault(passage, passage) for passage in event.shown))
        else:
            counts["without_question"] += 1


def _votes(
    events: Iterable[tuple[str, Event]], bots: Collection[str], passages: Collection[str], counts: Counter[str]
) -> dict[tuple[str, str], list[Event]]:
    """Events with known passages alone, by session and normalised question; counts what is left out."""
    votes: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for key, event in events:
        if event.session in bots:
            counts["bot_events"] += 1
            continue
        counts["clicks_outside"] += event.outside
        known = tuple(passage for passage in event.shown if passage.passage in passages)
        counts["unknown_passages"] += len(event.shown) - len(known)
        if not known:
            counts["without_passage"] += 1
            continue
        # Without sessions every list is a vote, and so are all lines of one moment that are parts of a list.
        session = event.session or (f"\n{len(votes)}" if event.is_whole else f"{_OF_ROWS}{event.time!r}")
        votes[session, key].append(event._replace(shown=known))
    return votes


def _repeats(events: Iterable[Event]) -> int:
    """Number of shown passages that another of the events has already."""
    shown = Counter(passage.passage for event in events for passage in event.shown)
    return shown.total() - len(shown)


def bot_sessions(events: Sequence[tuple[str, Event]], settings: FeedbackSettings) -> set[str]:
    """Sessions that asked more different questions within a minute or a day than a person does.

    Args:
        events: Normalised questions, and events; events without a session are skipped.
        settings: Limits.
    """
    questions: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for key, event in events:
        if event.session:
            questions[event.session].append((event.time, key))
    limits = ((MINUTE, settings.most_per_minute), (DAY, settings.most_per_day))
    return {
        session
        for session, timed in questions.items()
        if any(len(timed) > most and _most_within(sorted(timed), span) > most for span, most in limits)
    }


def _most_within(questions: Sequence[tuple[float, str]], span: float) -> int:
    """Largest number of different questions in a window of ``span`` seconds; ``questions`` are sorted by time."""
    inside: Counter[str] = Counter()
    most = first = 0
    for time, key in questions:
        inside[key] += 1
        while questions[first][0] <= time - span:
            left = questions[first][1]
            inside[left] -= 1
            if not inside[left]:
                del inside[left]
            first += 1
        most = max(most, len(inside))
    return most


def _merged(events: Iterable[Event], min_dwell: float) -> tuple[tuple[Shown, ...], int]:
    """The passages of a session's events of one question, and the number of clicks that were too short.

    A short click keeps its dwell time; other passages have none.
    """
    by_passage: dict[str, list[tuple[float, Shown]]] = defaultdict(list)
    for event in events:
        for passage in event.shown:
            by_passage[passage.passage].append((event.time, passage))
    merged, short = [], 0
    for id_, timed in sorted(by_passage.items()):
        passages = [passage for _, passage in timed]
        positions = [passage.position for passage in passages if passage.position is not None]
        thumbs = sorted((time, passage.thumb) for time, passage in timed if passage.thumb)
        last = thumbs[-1][1] if thumbs else 0  # the last one counts
        thumb = 0 if last == WITHDRAWN else last
        times = [passage.dwell for passage in passages if passage.clicked and passage.dwell is not None]
        longest = max(times) if times else None
        clicked = thumb > 0 or any(passage.clicked for passage in passages)
        is_short = clicked and not thumb and longest is not None and longest < min_dwell
        short += is_short
        merged.append(Shown(id_, min(positions, default=None), clicked, longest if is_short else None, thumb))
    return tuple(merged), short
