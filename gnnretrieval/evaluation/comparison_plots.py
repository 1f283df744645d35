"""Plots of a comparison: means, differences from the baseline, and differences by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from gnnretrieval.errors import counted
from gnnretrieval.evaluation.compare import Comparison
from gnnretrieval.pages.axes import Axis
from gnnretrieval.pages.html import Figure, Html
from gnnretrieval.pages.plots import Dot, Line, dot_plot, line_plot, lying_bars

_STEPS = 600  # steps of a curve over questions, at most
BETTER, WORSE = 0, 4  # series, which give the colours


def _signed(value: float) -> str:
    return f"{value:+.4g}" if value else "0"


def means(comparison: Comparison, source: Html) -> list[Figure]:
    """One plot per measure: each system's mean with its bootstrap interval."""
    return [_mean(comparison, measure, source) for measure in comparison.measure_names]


def _mean(comparison: Comparison, measure: str, source: Html) -> Figure:
    rows = []
    for system in comparison.systems:
        value = system.measures[measure]
        low, high = comparison.intervals.get(system.name, {}).get(measure, (value, value))
        rows.append(
            Dot(system.name, 100 * value, 100 * low, 100 * high, 0 if system.name != comparison.baseline else 6)
        )
    summary = ", ".join(f"{row.name} {row.value:.1f} [{row.low:.1f}, {row.high:.1f}]" for row in rows)
    return Figure(
        measure,
        f"Mean over {counted(comparison.queries, 'query')} × 100, with its 95 % bootstrap interval.",
        dot_plot(f"{measure} × 100: {summary}", rows, Axis(f"{measure} × 100", "{:.4g}".format)),
        source,
    )


def differences(comparison: Comparison, source: Html) -> list[Figure]:
    """One plot per system: each measure's difference from the baseline with its bootstrap interval."""
    figures = []
    for system, tests in groupby(comparison.tests, key=lambda test: test.system):
        rows = []
        for test in tests:
            low, high = test.interval or (test.difference, test.difference)
            series = BETTER if low > 0 else WORSE if high < 0 else 6
            rows.append(Dot(test.measure, 100 * test.difference, 100 * low, 100 * high, series))
        summary = ", ".join(f"{row.name} {row.value:+.1f} [{row.low:+.1f}, {row.high:+.1f}]" for row in rows)
        figures.append(
            Figure(
                f"{system} minus {comparison.baseline}",
                "Difference × 100 with its 95 % bootstrap interval, paired by query. An interval without 0 is evidence"
                " of a difference.",
                dot_plot(
                    f"{system} minus {comparison.baseline}: {summary}", rows, Axis("difference × 100", _signed), 0.0
                ),
                source,
            )
        )
    return figures


def by_question(
    measure: str, system: str, baseline: str, values: Mapping[str, Mapping[str, float]], source: Html
) -> Figure:
    """Every question's difference from the baseline, largest first.

    Args:
        measure: Name of the measure.
        system: Name of the system.
        baseline: Name of the baseline.
        values: The measure's values by query id by system.
        source: The line that names the files behind the plot.
    """
    ordered = sorted((100 * (value - values[baseline][query]) for query, value in values[system].items()), reverse=True)
    better, worse = sum(value > 0 for value in ordered), sum(value < 0 for value in ordered)
    same = len(ordered) - better - worse
    counted = f"{better:,} better, {same:,} the same, {worse:,} worse"
    lines = [
        _area(f"{better:,} better", ordered[:better], 1, BETTER),
        _area(f"{worse:,} worse", ordered[len(ordered) - worse :], len(ordered) - worse + 1, WORSE),
    ]
    return Figure(
        f"Question by question: {system} and {baseline}",
        f"Difference in {measure} × 100, questions sorted by it: {counted}.",
        line_plot(
            f"Sorted differences in {measure} × 100 of {system} from {baseline}: {counted}",
            [line for line in lines if line.x],
            Axis("questions", low=0, high=len(ordered)),
            Axis("difference × 100", _signed, low=None if worse else 0.0, high=None if better else 0.0),
        ),
        source,
    )


def _area(name: str, ordered: Sequence[float], first: int, series: int) -> Line:
    """Sorted values over the positions of their questions, thinned to at most :data:`_STEPS` points."""
    every = max(1, -(-len(ordered) // _STEPS))
    return Line(name, list(range(first, first + len(ordered), every)), ordered[::every], series, look="area")


def wins(comparison: Comparison, source: Html) -> Figure:
    """One bar per system: the questions on which it is better than the baseline, the same, and worse."""
    measure = comparison.measure_names[0]
    tests = [test for test in comparison.tests if test.measure == measure]
    rows = [
        (
            test.system,
            [
                (test.wins, f"{test.wins:,} won"),
                (test.ties, f"{test.ties:,} tied"),
                (test.losses, f"{test.losses:,} lost"),
            ],
        )
        for test in tests
    ]
    summary = "; ".join(f"{name}: {', '.join(what for _, what in parts)}" for name, parts in rows)
    return Figure(
        f"Questions won, tied and lost against {comparison.baseline}",
        f"By {measure}. {summary}.",
        lying_bars(f"Questions won, tied and lost: {summary}", rows, {"won": BETTER, "tied": 6, "lost": WORSE}),
        source,
    )
