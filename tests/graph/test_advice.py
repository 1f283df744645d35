"""Each warning appears exactly when it should: figures without fault have none, and one fault has its own."""

import json
from pathlib import Path

import pytest

from gnnretrieval.graph import inspect_graph
from gnnretrieval.graph.inspection.advice import GAINED, GAINED_UNTAUGHT, warnings_of
from gnnretrieval.graph.inspection.report import GraphReport

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
HUB = {"id": "hub", "title": "", "text": ""}
FINE = {
    "passages": 1000,
    "queries": 2000,
    "queries_per_passage__mean": 10.0,
    "queries_per_passage__max": 80,
    "queries_per_passage__share_never_found": 0.1,
    "queries_per_passage__edges_of_top_percent": 0.05,
    "most_found": [{**HUB, "queries": 80}],
    "labelled_passage_among_neighbours": {"1": 0.4, "5": 0.8},
    "agreement__share_of_queries": 0.6,
    "agreement__paraphrase": 0.7,
    "near_duplicates__queries__share": 0.02,
    "near_duplicates__passages__share": 0.01,
    "overlap__splits": {
        "test": {
            "queries": 100,
            "same_id": 0,
            "same_text": 0,
            "relevant_passages": 90,
            "share_with_training_questions": 0.5,
            "share_never_found": 0.1,
        }
    },
}
TEST = ("overlap", "splits", "test")


@pytest.fixture
def fine(tiny_graph) -> GraphReport:
    """The figures of a graph of 1,000 passages without fault."""
    return changed(inspect_graph(tiny_graph), **FINE)


def changed(report: GraphReport, **values) -> GraphReport:
    """``report`` with other values at dotted places (``__`` for a dot)."""
    figures = report.as_json() | {"path": report.path}
    for place, value in values.items():
        *path, name = place.split("__")
        target = figures
        for key in path:
            target = target[key]
        target[name] = value
    return GraphReport.model_validate(figures)


def test_a_graph_without_fault_has_no_warning(fine):
    assert list(warnings_of(fine)) == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"queries_per_passage__mean": 15.5, "queries": 3100}, "Try k = 4"),
        ({"queries_per_passage__mean": 20.0, "k": 1, "labelled_passage_among_neighbours": {"1": 1.0}}, "fewer queries"),
        (
            {"queries_per_passage__max": 501, "most_found": [{**HUB, "queries": 501}]},
            "501 queries are joined to passage hub",
        ),
        ({"queries_per_passage__edges_of_top_percent": 0.21}, "1 % of the passages with most queries"),
        ({"queries_per_passage__share_never_found": 0.51}, "51% of the passages are joined to no query"),
        ({"labelled_passage_among_neighbours": {"1": 0.1, "5": 0.49}}, "Only 49% of the queries"),
        ({"labelled_passage_among_neighbours": {}}, "Add judgements"),
        ({"agreement__paraphrase": 0.49}, "agree by 0.49 (0: no more alike than any two, 1: the same)"),
        (
            {"agreement__share_of_queries": 0.04, "agreement__paraphrase": 0.1},
            "Only 4.0% of the queries have the same relevant passage",
        ),
        ({"agreement": None}, "Only 0.0% of the queries have the same relevant passage"),
        ({"near_duplicates__queries__share": 0.11}, "11% of the queries have a near-duplicate"),
        ({"near_duplicates__passages__share": 0.06}, "6% of the retrieved passages"),
        ({"__".join((*TEST, "same_text")): 3}, "Queries of test are in the graph, by id or text (3 of 100)"),
        ({"__".join((*TEST, "same_id")): 100}, "(100 of 100)"),
        ({"__".join((*TEST, "share_with_training_questions")): 0.04}, "(4% in test)"),
    ],
)
def test_one_fault_has_its_own_warning_and_no_other(fine, values, says):
    (warning,) = warnings_of(changed(fine, **values))
    assert says in warning


@pytest.mark.parametrize(
    "values",
    [
        {"queries_per_passage__mean": 15.0},
        {"queries_per_passage__max": 500},
        {"queries_per_passage__edges_of_top_percent": 0.2},
        {"queries_per_passage__edges_of_top_percent": 0.9, "passages": 99},
        {"queries_per_passage__share_never_found": 0.5},
        {"labelled_passage_among_neighbours": {"1": 0.1, "5": 0.5}},
        {"agreement__paraphrase": 0.5},
        {"near_duplicates__queries__share": 0.1},
        {"near_duplicates__passages__share": 0.05},
        {"__".join((*TEST, "share_with_training_questions")): 0.1},
        {"__".join((*TEST, "share_with_training_questions")): 0.0, "__".join((*TEST, "relevant_passages")): 0},
        {"overlap__splits": {}},
    ],
)
def test_at_a_threshold_there_is_no_warning(fine, values):
    assert list(warnings_of(changed(fine, **values))) == []


def test_measured_sets_are_named_by_whether_passages_asked_for_have_training_questions(fine):
    (with_questions,) = warnings_of(changed(fine, agreement__paraphrase=0.3))
    its = GAINED["squad-open"]
    assert f"squad-open gained {its.over_encoder} over its dual-encoder, and {its.over_best} " in with_questions
    assert "({} to {}) over the strongest simple use".format(*its.interval) in with_questions
    share = {"__".join((*TEST, "share_with_training_questions")): 0.0}
    without = next(iter(warnings_of(changed(fine, agreement__paraphrase=0.3, **share))))
    assert f"fairytaleqa gained {GAINED_UNTAUGHT['fairytaleqa'].over_encoder}" in without
    assert "squad-open gained" not in without


def test_what_measured_sets_gained_is_what_the_benchmark_has():
    sets = json.loads((RESULTS / "same_labels.json").read_text(encoding="utf-8"))["sets"]
    for name, gained in (GAINED | GAINED_UNTAUGHT).items():
        against = sets[name]["groups"]["all"]["against"]
        best = against[sets[name]["strongest"]]
        differences = [round(100 * one["difference"], 1) for one in (against["dual-encoder"], best)]
        assert gained == (*differences, tuple(round(100 * bound, 1) for bound in best["interval"]))
