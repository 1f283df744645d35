import json
from collections import Counter

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.graph import GraphSettings, build_graph, inspect_graph
from gnnretrieval.graph.inspect import format_graph


@pytest.fixture
def figures(tiny_graph):
    return inspect_graph(tiny_graph, most=3)


def test_counts_are_those_of_the_graph(figures, tiny_graph):
    assert {key: figures[key] for key in ("passages", "queries", "k", "edges", "dimension")} == {
        "passages": 40,
        "queries": 60,
        "k": 5,
        "edges": 300,
        "dimension": 32,
    }
    assert figures["edge_features"] == ["score", "reciprocal_rank", "bm25"]
    assert figures["bytes_on_disk"] == sum(file.stat().st_size for file in tiny_graph.path.rglob("*"))


def test_queries_a_passage_equal_brute_force(figures, tiny_graph):
    found = Counter(tiny_graph.neighbors.ravel().tolist())
    degrees = sorted(found[passage] for passage in range(40))
    of_passage = figures["queries_per_passage"]
    assert of_passage["mean"] == 7.5
    assert of_passage["p50"] == (degrees[19] + degrees[20]) / 2
    assert of_passage["max"] == degrees[-1]
    assert of_passage["share_never_found"] == degrees.count(0) / 40
    ranked = sorted(range(40), key=lambda passage: (-found[passage], passage))[:3]
    assert [(row["id"], row["queries"]) for row in figures["most_found"]] == [(f"p{p:02d}", found[p]) for p in ranked]


def test_recall_by_rank_equals_brute_force_on_the_judgements(figures, tiny_graph, tiny_dataset):
    judged = Dataset.open(tiny_dataset).split("train")
    expected = {}
    for depth in range(1, 6):
        hits = [
            any(judged[query].get(f"p{row:02d}", 0) > 0 for row in tiny_graph.neighbors[number, :depth])
            for number, query in enumerate(judged)
        ]
        expected[str(depth)] = pytest.approx(np.mean(hits))
    assert figures["labelled_passage_among_neighbours"] == expected


def test_scores_are_percentiles_of_the_edges(figures, tiny_graph):
    for percent in (1, 25, 50, 75, 99):
        assert figures["scores"][f"p{percent}"] == pytest.approx(np.percentile(tiny_graph.scores, percent))


def test_figures_are_json_and_readable(figures):
    assert json.loads(json.dumps(figures)) == figures
    text = format_graph(figures)
    assert "40 passages, 60 queries, k = 5: 300 edges" in text
    assert figures["most_found"][0]["id"] in text


def test_a_crowded_graph_is_warned_of_with_a_k_that_fits(tiny_dataset, tiny_features, tmp_path):
    settings = GraphSettings(k=20, edge_features=())
    figures = inspect_graph(build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph"))
    warning = next(line for line in figures["warnings"] if "hubs" in line)
    assert "30.0 queries a passage" in warning
    assert "Try k = 10" in warning
    assert f"Warning: {warning}" in format_graph(figures)


def test_passages_that_no_query_found_and_a_low_ceiling_are_warned_of(tiny_dataset, tiny_features, tmp_path):
    settings = GraphSettings(k=1, edge_features=())
    graph = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph")
    figures = inspect_graph(graph)
    share, ceiling = figures["queries_per_passage"]["share_never_found"], figures["labelled_passage_among_neighbours"]
    assert ceiling["1"] < 0.5
    assert any(f"Only {100 * ceiling['1']:.0f} % of the queries" in line for line in figures["warnings"])
    assert any("found by no query" in line for line in figures["warnings"]) == (share > 0.5)
