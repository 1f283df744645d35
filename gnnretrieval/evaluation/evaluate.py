"""Evaluate one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gnnretrieval.errors import counted
from gnnretrieval.evaluation.measures import as_run, mean, per_query
from gnnretrieval.evaluation.names import Measure
from gnnretrieval.evaluation.significance import bootstrap_interval
from gnnretrieval.settings import DEFAULT_MEASURES


class Evaluation(NamedTuple):
    """Measures of a run.

    Attributes:
        measures: Mean over queries by measure, between 0 and 1.
        per_query: Value by query id by measure.
        intervals: 95 % bootstrap interval of each mean.
    """

    measures: dict[str, float]
    per_query: dict[str, dict[str, float]]
    intervals: dict[str, tuple[float, float]]

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """One line per measure: mean × 100 and its interval."""
        width = max(map(len, self.measures))
        queries = len(next(iter(self.per_query.values())))
        lines = [f"{counted(queries, 'query')}, x 100, 95 % bootstrap intervals"]
        for name, value in self.measures.items():
            low, high = self.intervals[name]
            lines.append(f"{name:<{width}}  {100 * value:5.1f}  ({100 * low:.1f} to {100 * high:.1f})")
        return "\n".join(lines)


def evaluate(
    qrels: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Any],
    measures: Iterable[str | Measure] = DEFAULT_MEASURES,
) -> Evaluation:
    """Measure a run on every judged query; a query that the run lacks counts zero.

    Args:
        qrels: Relevance by passage id by query id.
        run: A run, as :func:`gnnretrieval.evaluation.compare.compare` takes it.
        measures: Names by ir-measures or trec_eval.

    Raises:
        InputError: see :func:`gnnretrieval.evaluation.measures.per_query`.
    """
    values = per_query(qrels, as_run(run), measures)
    intervals = {name: bootstrap_interval(list(by_query.values())) for name, by_query in values.items()}
    return Evaluation(mean(values), values, intervals)
