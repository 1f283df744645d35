"""Evaluation: measures of a run, significance tests between runs, and tables that compare systems.

Every measure ranks ties in the project's one order (:func:`gnnretrieval.data.runs.trec.rank`) and averages over all
judged queries. Every test is paired by query.
"""

from gnnretrieval.data.answer_scores import answer_f1, exact_match
from gnnretrieval.evaluation.answers import AnswerHits, find_answers, judged_in, require_answers
from gnnretrieval.evaluation.changed_queries import most_changed, relevant_ranks
from gnnretrieval.evaluation.compare import Comparison, compare
from gnnretrieval.evaluation.evaluate import Evaluation, evaluate
from gnnretrieval.evaluation.fusion_choice import ClickedDev, FusionChoice, choose_fusion
from gnnretrieval.evaluation.measures import mean, per_query
from gnnretrieval.evaluation.names import parse_measures, split_names
from gnnretrieval.evaluation.reading import answer_values, answered_queries, choose_weight
from gnnretrieval.evaluation.self_retrieval import leave_out_self
from gnnretrieval.evaluation.significance import TestResult, bootstrap_interval, effect_size, holm, paired_test
from gnnretrieval.evaluation.tables import (
    csv_comparison,
    detailed_comparison,
    format_comparison,
    latex_comparison,
    markdown_comparison,
)
from gnnretrieval.evaluation.values import format_values, write_values
from gnnretrieval.index.fuse import fuse

__all__ = [
    "AnswerHits",
    "ClickedDev",
    "Comparison",
    "Evaluation",
    "FusionChoice",
    "TestResult",
    "answer_f1",
    "answer_values",
    "answered_queries",
    "bootstrap_interval",
    "choose_fusion",
    "choose_weight",
    "compare",
    "csv_comparison",
    "detailed_comparison",
    "effect_size",
    "evaluate",
    "exact_match",
    "find_answers",
    "format_comparison",
    "format_values",
    "fuse",
    "holm",
    "judged_in",
    "latex_comparison",
    "leave_out_self",
    "markdown_comparison",
    "mean",
    "most_changed",
    "paired_test",
    "parse_measures",
    "per_query",
    "relevant_ranks",
    "require_answers",
    "split_names",
    "write_values",
]
