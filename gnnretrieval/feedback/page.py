"""The report of an import of feedback as an offline page."""

from __future__ import annotations

from gnnretrieval.errors import counted
from gnnretrieval.feedback.report import (
    FeedbackReport,
    Rows,
    drift_rows,
    dropped_in_words,
    position_rows,
    rates_in_words,
    split_rows,
)
from gnnretrieval.pages.axes import Axis
from gnnretrieval.pages.html import Figure, Html, figures, page, paragraph, section, table, tiles, warnings
from gnnretrieval.pages.plots import Dot, dot_plot


def page_of(report: FeedbackReport) -> str:
    """The page."""
    cleaning = report.cleaning
    labels = {split.split: split.relevant for split in report.splits}
    logs = [[log.name, *_columns(log.columns)] for log in report.logs]
    return page(
        "Feedback: the import",
        f"{counted(cleaning.events, 'event')}, {report.begins} to {report.ends}.",
        warnings(report.warnings),
        tiles(
            [
                (f"{cleaning.impressions:,}", "impressions, one a session and question"),
                (f"{cleaning.questions:,}", f"questions, in {counted(cleaning.spellings, 'spelling')}"),
                *((f"{count:,}", f"labels of {split}") for split, count in labels.items()),
            ]
        ),
        section("Position bias", *_positions(report)),
        section("Judgements", paragraph(" ".join(rates_in_words(report))), _table(split_rows(report), "Judgements")),
        section(
            "Drift",
            paragraph("What is new in a split's time, against all that came before."),
            _table(drift_rows(report), "Drift"),
        ),
        section("Dropped or merged", *map(paragraph, dropped_in_words(report))),
        section("Columns", table(["log", "field = column"], logs, name="Columns")),
    )


def _columns(columns: dict[str, str]) -> list[str]:
    return [", ".join(f"{field} = {name}" for field, name in columns.items())]


def _positions(report: FeedbackReport) -> list[Html]:
    if not report.positions:
        return [paragraph("The log has no positions.")]
    dots = [Dot(f"position {place.position}", place.propensity, place.low, place.high) for place in report.positions]
    plot = dot_plot("Propensity by position", dots, Axis("propensity", lambda value: f"{value:.2f}"), 1.0)
    meaning = "How often a position is examined, as a multiple of the first, with 95 % intervals."
    return [figures([Figure("Propensities", meaning, plot)]), _table(position_rows(report), "Position bias")]


def _table(rows: Rows, name: str) -> Html:
    head, cells = rows
    return table(head, cells, range(1, len(head)), name)
