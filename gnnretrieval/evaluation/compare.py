"""A comparison of systems on one set of queries, as ``comparison.json`` holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from gnnretrieval.data.runs.trec import Run
from gnnretrieval.errors import InputError, nearest
from gnnretrieval.evaluation.answers import AnswerHits
from gnnretrieval.evaluation.measures import as_run, mean, per_query
from gnnretrieval.evaluation.names import Measure, parse_measures
from gnnretrieval.evaluation.significance import TestResult, bootstrap_interval, effect_size, holm, paired_test
from gnnretrieval.settings import DEFAULT_MEASURES, Settings

_Values = dict[str, dict[str, float]]  # value by query by measure


class _Part(Settings):
    # Unknown keys are no error here, unlike in a recipe: a newer gnnretrieval may have written more.
    model_config = ConfigDict(extra="allow", frozen=True)


class System(_Part):
    """One row of the table: a system and its means."""

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
    interval: tuple[float, float] | None = None
    """95 % bootstrap interval of the difference."""
    effect_size: float | None = None
    """Cohen's d of the paired values; None where the differences do not vary."""
    p_randomisation: float | None = None
    """p of Fisher's randomisation test; None where it was not run."""
    p_randomisation_holm: float | None = None


class Comparison(_Part):
    """Systems on one split against a baseline, as ``comparison.json`` holds it."""

    split: str
    baseline: str
    queries: int = 0
    """How many queries the means and tests are over."""
    systems: list[System]
    tests: list[Difference]
    intervals: dict[str, dict[str, tuple[float, float]]] = Field({})
    """95 % bootstrap interval of each mean, by system and measure."""
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
        """Names of the measures, in the order of the columns."""
        return list(self.systems[0].measures)

    def test(self, system: str, measure: str) -> Difference | None:
        """The test of ``measure`` of ``system``; None for the baseline."""
        return next((test for test in self.tests if (test.system, test.measure) == (system, measure)), None)

    def as_json(self) -> dict[str, Any]:
        """The content of ``comparison.json``."""
        return self.model_dump(mode="json")

    def to_text(self) -> str:
        """The table as the command line prints it."""
        from gnnretrieval.evaluation.tables import format_comparison

        return format_comparison(self)

    def to_html(self) -> str:
        """The table as an HTML fragment."""
        from gnnretrieval.evaluation.tables import html_comparison

        return str(html_comparison(self))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        return self.to_text()

    @classmethod
    def from_json(cls, values: Mapping[str, Any], path: str | Path | None = None) -> Self:
        """Parse what :meth:`as_json` gives.

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
    baseline: str | None = None,
    measures: Iterable[str | Measure] = DEFAULT_MEASURES,
    split: str = "test",
    provenance: Mapping[str, Any] = MappingProxyType({}),
    randomisation: bool = False,
    answers: AnswerHits | None = None,
) -> Comparison:
    """Measure every run on every judged query, and test each measure of each system against the baseline.

    The tests are two-sided paired t-tests, with Holm's correction over all of them. Means and differences have 95 %
    bootstrap intervals, and each difference has an effect size.

    Args:
        qrels: Relevance by passage id by query id.
        runs: Run by system name, in the order of the table: passages and scores by query id, as
            :meth:`gnnretrieval.index.retriever.Retriever.run` gives them, or scores by passage id by query id.
        baseline: Name of the system that the others are tested against; None: the first.
        measures: Names or parsed measures, in the order of the columns.
        split: Name of the split that ``qrels`` judge.
        provenance: Where the runs come from, as JSON values: dataset hash, seed, versions … (law 10).
        randomisation: Also run Fisher's randomisation test of each pair, corrected as a separate family.
        answers: Result of :func:`gnnretrieval.evaluation.answers.find_answers` for these runs.

    Raises:
        InputError: the baseline is not among the runs, a measure is unknown, a run has no query in common with
            ``qrels``, or a ranking has a NaN or lists a passage twice.
    """
    runs = {name: as_run(run) for name, run in runs.items()}
    baseline = next(iter(runs), "") if baseline is None else baseline
    if baseline not in runs:
        known = ", ".join(runs) or "none"
        raise InputError(f"the baseline {baseline!r} is not among the runs ({known}).{nearest(baseline, runs)}")
    parsed = parse_measures(measures)
    values = {name: _values(name, qrels, run, parsed, answers) for name, run in runs.items()}
    names = [str(measure) for measure in parsed]
    return Comparison(
        split=split,
        baseline=baseline,
        queries=len(values[baseline][names[0]]),
        systems=[System(name=name, measures=mean(values[name])) for name in runs],
        intervals={
            name: {measure: bootstrap_interval(list(values[name][measure].values())) for measure in names}
            for name in runs
        },
        tests=_tests(values, baseline, names, randomisation),
        provenance=dict(provenance),
    )


def _values(
    system: str,
    qrels: Mapping[str, Mapping[str, int]],
    run: Run,
    measures: Sequence[Measure],
    answers: AnswerHits | None,
) -> _Values:
    try:
        return per_query(qrels, run, measures, answers)
    except InputError as error:
        raise InputError(f"system {system!r}: {error}") from None


def _tests(
    values: Mapping[str, _Values], baseline: str, measures: Sequence[str], randomisation: bool
) -> list[Difference]:
    """The tests of each measure of each system against the baseline, with Holm's correction over all of them."""
    pairs = [(system, measure) for system in values if system != baseline for measure in measures]

    def corrected(method: Literal["t", "randomisation"]) -> tuple[list[TestResult], list[float]]:
        results = [paired_test(values[system][measure], values[baseline][measure], method) for system, measure in pairs]
        return results, holm([result.p for result in results])

    tests = []
    for (system, measure), result, p_holm in zip(pairs, *corrected("t"), strict=True):
        baseline_values = values[baseline][measure]
        differences = [value - baseline_values[query] for query, value in values[system][measure].items()]
        tests.append(
            Difference(
                system=system,
                measure=measure,
                p_holm=p_holm,
                interval=bootstrap_interval(differences),
                effect_size=effect_size(differences),
                **asdict(result),
            )
        )
    if not randomisation:
        return tests
    return [
        test.model_copy(update={"p_randomisation": result.p, "p_randomisation_holm": p_holm})
        for test, result, p_holm in zip(tests, *corrected("randomisation"), strict=True)
    ]
