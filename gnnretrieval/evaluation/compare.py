"""Systems side by side on one set of queries: ``comparison.json`` and its tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, model_validator

from gnnretrieval.data.trec import Run
from gnnretrieval.errors import InputError, nearest
from gnnretrieval.evaluation.measures import Measure, mean, parse_measures, per_query
from gnnretrieval.evaluation.significance import holm, paired_test
from gnnretrieval.settings import Settings

MARKS = ((0.01, "‡"), (0.05, "†"))  # Holm-corrected p below the first, strictest first


class _Part(Settings):
    # Not an error here, unlike in a recipe: a newer gnnretrieval may have written more.
    model_config = ConfigDict(extra="allow", frozen=True)


class System(_Part):
    """One row: a system and its means."""

    name: str
    measures: dict[str, float]
    """Mean over queries by measure name, between 0 and 1."""


class Difference(_Part):
    """A paired t-test of one measure of one system against the baseline."""

    system: str
    measure: str
    difference: float
    """The system's mean minus the baseline's."""
    p: float
    p_holm: float
    """p after Holm's correction over every test of the comparison."""
    wins: int = 0
    """Queries on which the system is above the baseline."""
    ties: int = 0
    losses: int = 0


class Comparison(_Part):
    """Systems on one split against a baseline, as ``comparison.json`` holds it."""

    split: str
    baseline: str
    queries: int = 0
    """How many queries the means and tests are over."""
    systems: list[System]
    tests: list[Difference]
    provenance: dict[str, Any]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = [system.name for system in self.systems]
        if self.baseline not in names:
            raise ValueError(f"the baseline {self.baseline!r} is not among the systems")
        if not self.measure_names or any(list(system.measures) != self.measure_names for system in self.systems):
            raise ValueError("the systems do not have the same measures")
        for test in self.tests:
            if test.system not in names or test.measure not in self.measure_names:
                raise ValueError(f"a test names {test.system!r} and {test.measure!r}, which are not in the table")
        return self

    @property
    def measure_names(self) -> list[str]:
        """The columns."""
        return list(self.systems[0].measures)

    def test(self, system: str, measure: str) -> Difference | None:
        """The test of ``measure`` of ``system``; None for the baseline."""
        return next((test for test in self.tests if (test.system, test.measure) == (system, measure)), None)

    def as_json(self) -> dict[str, Any]:
        """The content of ``comparison.json``."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, values: Mapping[str, Any], path: str | Path | None = None) -> Self:
        """The comparison from what :meth:`as_json` gives.

        Args:
            values: The parsed JSON.
            path: The file it came from, named in errors.

        Raises:
            InputError: a key is missing, or a value does not fit.
        """
        return cls.parse(values, path)


def compare(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    baseline: str,
    measures: Iterable[str | Measure],
    split: str,
    provenance: Mapping[str, Any],
) -> Comparison:
    """Measure every run on every judged query, and test every (system, measure) against the baseline's.

    The tests are two-sided paired t-tests. All of them together are the family of Holm's correction.

    Args:
        qrels: Relevance by passage id by query id.
        runs: Run by system name, in the order of the table.
        baseline: Name of the system that the others are tested against.
        measures: Names or parsed measures, in the order of the columns.
        split: Name of the split that ``qrels`` judge.
        provenance: Where the runs come from, as JSON values: dataset hash, seed, versions … (law 10).

    Raises:
        InputError: the baseline is not among the runs, a measure is unknown, or a run has no query in common with
            ``qrels`` or a ranking with NaN or a passage twice.
    """
    if baseline not in runs:
        known = ", ".join(runs) or "none"
        raise InputError(f"the baseline {baseline!r} is not among the runs ({known}).{nearest(baseline, runs)}")
    parsed = parse_measures(measures)
    values = {}
    for name, run in runs.items():
        try:
            values[name] = per_query(qrels, run, parsed)
        except InputError as error:
            raise InputError(f"system {name!r}: {error}") from None
    names = [str(measure) for measure in parsed]
    pairs = [(system, measure) for system in runs if system != baseline for measure in names]
    results = [paired_test(values[system][measure], values[baseline][measure]) for system, measure in pairs]
    corrected = holm([result.p for result in results])
    return Comparison(
        split=split,
        baseline=baseline,
        queries=len(values[baseline][names[0]]),
        systems=[System(name=name, measures=mean(values[name])) for name in runs],
        tests=[
            Difference(system=system, measure=measure, p_holm=p_holm, **asdict(result))
            for (system, measure), result, p_holm in zip(pairs, results, corrected, strict=True)
        ],
        provenance=dict(provenance),
    )


def format_comparison(comparison: Comparison) -> str:
    """The comparison as a plain-text table: systems by measures x 100, with an explanation below."""
    header, *rows = _cells(comparison, best="{}*", other="{} ")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        return "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip()

    table = [line(header), "-" * (sum(widths) + 2 * (len(widths) - 1)), *map(line, rows)]
    return "\n".join([_caption(comparison), "", *table, "", *_legend(comparison, "* highest of its column.")])


def markdown_comparison(comparison: Comparison) -> str:
    """The comparison as a GitHub table, with the same explanation below."""
    escaped = [
        [cell.strip().replace("|", "\\|") for cell in row] for row in _cells(comparison, best="**{}**", other="{}")
    ]
    rules = ["---", *["---:"] * (len(escaped[0]) - 1)]
    table = ["| " + " | ".join(row) + " |" for row in (escaped[0], rules, *escaped[1:])]
    legend = " ".join(_legend(comparison, "Bold: highest of its column."))
    return "\n".join([_caption(comparison), "", *table, "", legend])


def _cells(comparison: Comparison, best: str, other: str) -> list[list[str]]:
    """Header and rows; measures are padded with ``other`` and the width of a mark, so that right-aligned they align."""
    first = comparison.measure_names[0]
    rows = [["", *(other.format(name) + " " for name in comparison.measure_names)]]
    if comparison.tests:
        rows[0] += [f"Δ {first}", "W/T/L"]
    for system in comparison.systems:
        row = [system.name]
        for measure, value in system.measures.items():
            form = best if _is_highest(comparison, measure, value) else other
            row.append(form.format(f"{100 * value:.1f}") + _mark(comparison.test(system.name, measure)))
        if comparison.tests:
            test = comparison.test(system.name, first)
            row += [f"{100 * test.difference:+.1f}", f"{test.wins}/{test.ties}/{test.losses}"] if test else ["–", "–"]
        rows.append(row)
    return rows


def _is_highest(comparison: Comparison, measure: str, value: float) -> bool:
    values = [system.measures[measure] for system in comparison.systems]
    return len(values) > 1 and math.isclose(value, max(values), rel_tol=1e-12)


def _mark(test: Difference | None) -> str:
    return next((mark for level, mark in MARKS if test and test.p_holm < level), " ")


def _caption(comparison: Comparison) -> str:
    return f"{comparison.split}: {comparison.queries:,} queries, measures × 100"


def _legend(comparison: Comparison, best: str) -> list[str]:
    if not comparison.tests:
        return [best] if len(comparison.systems) > 1 else []
    levels = ", ".join(f"{mark} p < {level}" for level, mark in reversed(MARKS))
    family = f"over the {len(comparison.tests)} tests here" if len(comparison.tests) > 1 else "(a single test here)"
    return [
        best,
        f"{levels}: differs from {comparison.baseline}, two-sided paired t-test, Holm's correction {family}.",
        f"Δ and W/T/L (queries won, tied, lost): {comparison.measure_names[0]} against {comparison.baseline}.",
    ]
