"""How good a ranking is: measures of a run, significance between runs, the table that compares systems.

Every measure sees every run in the project's one order (:func:`gnnretrieval.data.trec.rank`) and is over all judged
queries; every test is paired by query.
"""

from gnnretrieval.evaluation.changed import most_changed
from gnnretrieval.evaluation.compare import Comparison, compare
from gnnretrieval.evaluation.measures import mean, parse_measures, per_query
from gnnretrieval.evaluation.significance import TestResult, bootstrap_interval, effect_size, holm, paired_test
from gnnretrieval.evaluation.tables import (
    csv_comparison,
    detailed_comparison,
    format_comparison,
    latex_comparison,
    markdown_comparison,
)
from gnnretrieval.index.fuse import fuse

__all__ = [
    "Comparison",
    "TestResult",
    "bootstrap_interval",
    "compare",
    "csv_comparison",
    "detailed_comparison",
    "effect_size",
    "format_comparison",
    "fuse",
    "holm",
    "latex_comparison",
    "markdown_comparison",
    "mean",
    "most_changed",
    "paired_test",
    "parse_measures",
    "per_query",
]
