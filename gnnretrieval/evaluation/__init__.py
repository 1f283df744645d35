"""How good a ranking is: measures of a run, significance between runs, the table that compares systems.

Every measure sees every run in the project's one order (:func:`gnnretrieval.data.trec.rank`) and is over all judged
queries; every test is paired by query.
"""

from gnnretrieval.evaluation.compare import Comparison, compare, format_comparison, markdown_comparison
from gnnretrieval.evaluation.measures import mean, parse_measures, per_query
from gnnretrieval.evaluation.significance import TestResult, holm, paired_test

__all__ = [
    "Comparison",
    "TestResult",
    "compare",
    "format_comparison",
    "holm",
    "markdown_comparison",
    "mean",
    "paired_test",
    "parse_measures",
    "per_query",
]
