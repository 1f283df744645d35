"""The report of an import of feedback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnretrieval.errors import counted
from gnnretrieval.feedback.cleaning import CleaningFigures
from gnnretrieval.feedback.click_rates import ClickRates
from gnnretrieval.feedback.propensities import PositionFigures
from gnnretrieval.feedback.time_splits import DriftFigures
from gnnretrieval.pages.reports import Figures, Report
from gnnretrieval.pages.text_table import in_columns

_DISTINCT = 2.0  # least ratio of the two click rates by which passages can be told apart
_DROPPED = {  # by count: the noun, its plural if it is irregular, and what was wrong
    "too_old": ("event", "", "older than the retention"),
    "without_question": ("event", "", "without a question"),
    "bot_events": ("event", "", "of a session with too many questions a minute or a day (sessions: {bot_sessions:,})"),
    "unknown_passages": ("shown passage", "", "not among the passages"),
    "clicks_outside": ("click or thumb", "clicks and thumbs", "on no passage of the shown list"),
    "without_passage": ("event", "", "without a known passage"),
    "repeated": ("event", "", "merged with another of the same question and session"),
    "joined": ("row", "", "without a session, merged with others of the same question and time to one list"),
    "short_clicks": ("click", "", "with a short dwell time, not counted as a vote"),
}


class LogFigures(Figures):
    """A log, and the fields of its columns."""

    name: str
    columns: dict[str, str]
    """Column by field."""
    has_lists: bool
    """Whether it has passages that were shown and not clicked."""


class SplitJudgements(Figures):
    """Judgements of a split."""

    split: str
    impressions: int
    questions: int
    """Questions that were asked."""
    clicks: int
    pairs: int
    """Pairs of a question and a passage that was shown or clicked."""
    relevant: int
    """Judgements above 0."""
    questions_with_relevant: int
    undecided: int
    """Clicked pairs that are neither relevant nor hard negatives."""
    hard_negatives: int
    """Judgements of 0: often shown, and never clicked."""
    same_text: int
    """Pairs that would be hard negatives, but have the text of a relevant passage or of the question."""


class FeedbackReport(Report):
    """What :func:`gnnretrieval.feedback.import_feedback` read, dropped, estimated and judged."""

    logs: list[LogFigures]
    begins: str
    """Time of the first impression, in UTC."""
    ends: str
    """Time of the last impression, in UTC."""
    cleaning: CleaningFigures
    later_of_earlier: int
    """Impressions in dev's and test's times that are left out, as an earlier split has the question."""
    positions: list[PositionFigures]
    """Empty where the log has no positions."""
    rates: ClickRates
    """Of the training period."""
    splits: list[SplitJudgements]
    drift: list[DriftFigures]
    warnings: list[str]
    """Sentences that say what to do."""

    def to_text(self) -> str:
        """The figures as aligned lines."""
        cleaning = self.cleaning
        lines = [f"{counted(cleaning.events, 'event')}, {self.begins} to {self.ends}"]
        for log in self.logs:
            taken = ", ".join(f"{field} = {name}" for field, name in log.columns.items())
            lines.append(f"  {log.name}: {taken}" + ("" if log.has_lists else " (clicks only)"))
        lines += ["", "Dropped or merged", *(f"  {line}" for line in dropped_in_words(self)), ""]
        lines.append(
            f"{counted(cleaning.impressions, 'impression')} (one a session and question) of "
            f"{counted(cleaning.sessions, 'session')}: {counted(cleaning.questions, 'question')} in "
            f"{counted(cleaning.spellings, 'spelling')}"
        )
        if cleaning.redacted_questions:
            lines.append(f"personal data was masked in {counted(cleaning.redacted_questions, 'event')}")
        lines += [
            "",
            "Position bias: how often a position is examined, against the first",
            *_aligned(position_rows(self)),
        ]
        lines += ["", *rates_in_words(self)]
        lines += ["", "Judgements", *_aligned(split_rows(self))]
        lines += ["", "Drift: what is new in a split's time", *_aligned(drift_rows(self))]
        lines += ["", *([f"! {sentence}" for sentence in self.warnings] or ["No warnings."])]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The figures as an HTML page with tables and a plot that opens offline."""
        from gnnretrieval.feedback.page import page_of

        return page_of(self)


Rows = tuple[list[str], list[list[str]]]  # head and rows of a table


def dropped_in_words(report: FeedbackReport) -> list[str]:
    """Counts of dropped and merged events, one line each."""
    counts = report.cleaning.as_json()
    lines = [
        f"{counted(counts[name], one, many)} {wrong.format(**counts)}"
        for name, (one, many, wrong) in _DROPPED.items()
        if counts[name]
    ]
    if report.later_of_earlier:
        lines.append(f"{counted(report.later_of_earlier, 'impression')} of a question that an earlier split has")
    return lines or ["nothing"]


def rates_in_words(report: FeedbackReport) -> list[str]:
    """The two click rates in sentences; none without lists, as clicks alone cannot tell them apart."""
    rates = report.rates
    if not all(log.has_lists for log in report.logs):
        return []
    return [
        f"Click rate of examined passages: {rates.attractive:.3f} for {rates.share_attractive:.1%} of the pairs, "
        f"{rates.background:.3f} for the others (background).",
        f"Of the clicks, {rates.share_background_clicks:.1%} are background.",
    ]


def position_rows(report: FeedbackReport) -> Rows:
    """The table of the positions."""
    head = ["position", "impressions", "clicks", "click rate", "clicks in swaps", "propensity", "95 % interval"]
    return head, [
        [
            str(place.position),
            f"{place.impressions:,}",
            f"{place.clicks:,}",
            f"{place.clicks / place.impressions:.1%}" if place.impressions else "-",
            f"{place.swapped:,}",
            f"{place.propensity:.3f}",
            f"{place.low:.2f} to {place.high:.2f}",
        ]
        for place in report.positions
    ]


def split_rows(report: FeedbackReport) -> Rows:
    """The table of the splits."""
    head = ["split", "impressions", "clicks", "questions", "with a label", "labels", "hard negatives", "undecided"]
    return head, [
        [
            split.split,
            *(
                f"{count:,}"
                for count in (split.impressions, split.clicks, split.questions, split.questions_with_relevant)
            ),
            *(f"{count:,}" for count in (split.relevant, split.hard_negatives, split.undecided)),
        ]
        for split in report.splits
    ]


def drift_rows(report: FeedbackReport) -> Rows:
    """The table of the drift."""
    head = [
        "split",
        "since",
        "impressions",
        "never asked before",
        "clicks",
        "on unclicked",
        "on unshown",
        "new passages",
    ]
    return head, [
        [
            split.split,
            split.since,
            f"{split.impressions:,}",
            f"{split.share_new:.1%}",
            f"{split.clicks:,}",
            f"{split.share_clicks_on_unclicked:.1%}",
            f"{split.share_clicks_on_unshown:.1%}",
            f"{split.new_passages:,} of {split.passages:,}",
        ]
        for split in report.drift
    ]


def _aligned(table: Rows) -> Iterator[str]:
    head, rows = table
    if not rows:
        yield "  none"
        return
    yield from (f"  {line}" for line in in_columns([head, *rows], left=0))


def warnings_of(
    logs: Sequence[LogFigures],
    cleaning: CleaningFigures,
    positions: Sequence[PositionFigures],
    rates: ClickRates,
    splits: Sequence[SplitJudgements],
    has_sessions: bool,
) -> list[str]:
    """Sentences about flaws of the log that make the judgements worse."""
    sentences = []
    if not all(log.has_lists for log in logs):
        sentences.append(
            "A log has clicks without what was shown: position bias cannot be corrected, and there are no hard "
            "negatives. Log the shown passages too."
        )
    elif not positions:
        sentences.append("The log has no positions: position bias is not corrected. Log the position of each passage.")
    elif not any(place.swapped for place in positions):
        sentences.append(
            "No passage was clicked that the log shows at two positions for one question: position bias cannot be "
            "estimated and is not corrected. Let the ranking vary, for example by swapping neighbours at random."
        )
    if rates.background and rates.attractive < _DISTINCT * rates.background:
        sentences.append(
            f"Clicks hardly depend on the passage: rate {rates.attractive:.3f} against a background of "
            f"{rates.background:.3f}. Few of these labels can be right."
        )
    if not has_sessions:
        sentences.append("The log has no sessions: bots and repeated votes cannot be seen. Log a session id.")
    if cleaning.joined > cleaning.events / 20:
        sentences.append(
            "Lists of one question and time cannot be told apart and count as one vote: log a session, or times to the "
            "second instead of dates."
        )
    if cleaning.events and cleaning.bot_events > cleaning.events / 4:
        sentences.append(
            f"{cleaning.bot_events / cleaning.events:.0%} of the events are of sessions that count as bots. If people "
            "share a session id in your log, raise --most-per-minute and --most-per-day."
        )
    for split in splits:
        if split.questions and split.questions_with_relevant < split.questions / 10:
            sentences.append(
                f"{split.split}: {split.questions_with_relevant:,} of {split.questions:,} questions have a label. "
                "Import a longer time, or lower --level."
            )
    if all(split.split != "dev" or not split.relevant for split in splits):
        sentences.append("There is no dev split: settings are chosen by training questions that are held out.")
    if all(split.split != "test" or not split.relevant for split in splits):
        sentences.append(
            "There is no test split, on which `run` reports: no question that is first asked after its start has a "
            "label. Import a longer time, or let it begin earlier (--test-from)."
        )
    return sentences
