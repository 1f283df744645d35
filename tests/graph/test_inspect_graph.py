import json
from collections import Counter

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.graph import GraphSettings, build_graph, inspect_graph
from gnnretrieval.graph.inspection.report import GraphReport
from gnnretrieval.graph.inspection.text import shown_ranks
from gnnretrieval.pages.quantities import in_bytes


@pytest.fixture(scope="module")
def figures(tiny_graph):
    return inspect_graph(tiny_graph, most=3)


def test_counts_are_those_of_the_graph(figures, tiny_graph):
    assert {key: getattr(figures, key) for key in ("passages", "queries", "k", "edges", "dimension")} == {
        "passages": 40,
        "queries": 60,
        "k": 5,
        "edges": 300,
        "dimension": 32,
    }
    assert figures.edge_features == ["score", "reciprocal_rank", "bm25", "label"]


def test_bytes_on_disk_are_those_of_every_file_largest_first(figures, tiny_graph):
    sizes = Counter()
    for file in tiny_graph.path.rglob("*"):
        if file.is_file():
            inner = file.parent != tiny_graph.path
            sizes[f"{file.parent.name}/" if inner else file.name] += file.stat().st_size
    assert figures.files == sizes
    assert figures.bytes_on_disk == sum(sizes.values())
    assert list(figures.files.values()) == sorted(sizes.values(), reverse=True)


def test_queries_a_passage_equal_brute_force(figures, tiny_graph):
    found = Counter(tiny_graph.neighbors.ravel().tolist())
    degrees = sorted(found[passage] for passage in range(40))
    of_passage = figures.queries_per_passage
    assert of_passage.mean == 7.5
    assert of_passage.p50 == (degrees[19] + degrees[20]) / 2
    assert of_passage.max == degrees[-1]
    assert of_passage.share_never_found == degrees.count(0) / 40
    ranked = sorted(range(40), key=lambda passage: (-found[passage], passage))[:3]
    assert [(row.id, row.queries) for row in figures.most_found] == [(f"p{p:02d}", found[p]) for p in ranked]


def test_recall_by_rank_equals_brute_force_on_the_judgements(figures, tiny_graph, tiny_dataset):
    judged = Dataset.open(tiny_dataset).split("train")
    expected, (found, _) = {}, tiny_graph.retrieved(slice(60))
    for depth in range(1, 6):
        hits = [
            any(judged[query].get(f"p{row:02d}", 0) > 0 for row in found[number, :depth])
            for number, query in enumerate(judged)
        ]
        expected[str(depth)] = pytest.approx(np.mean(hits))
    assert figures.labelled_passage_among_neighbours == expected
    assert figures.labelled_queries == 60


def test_scores_are_percentiles_of_the_edges(figures, tiny_graph):
    for percent in (1, 25, 50, 75, 99):
        assert getattr(figures.scores, f"p{percent}") == pytest.approx(np.percentile(tiny_graph.scores, percent))


def test_the_other_splits_are_found_where_the_dataset_lies(figures, tiny_dataset):
    assert figures.overlap.dataset == str(tiny_dataset)
    splits = figures.overlap.splits
    assert {name: split.queries for name, split in splits.items()} == {"dev": 10, "test": 10}
    assert all(split.share_with_training_questions == 1 for split in splits.values())


def test_figures_are_json_the_same_each_time_and_readable(figures, tiny_graph):
    values = json.loads(json.dumps(figures.as_json(), allow_nan=False))
    assert "path" not in values
    assert GraphReport.model_validate(values | {"path": figures.path}) == figures
    assert inspect_graph(tiny_graph, most=3) == figures
    text = figures.to_text()
    assert "40 passages, 60 queries, k = 5: 300 edges" in text
    assert figures.most_found[0].id in text
    assert f"paraphrase                {figures.agreement.paraphrase:.2f}" in text
    assert max(len(line) for line in text.splitlines()) <= 140


def test_the_memory_is_of_the_layer_that_it_names(figures):
    text = " ".join(figures.to_text().split())
    assert f"memory of --layer gat {in_bytes(figures.memory.training_corpus)} to train against all passages" in text
    assert "of the default layer see gnnretrieval train --dry-run" in text


def test_a_view_is_inspected_as_what_it_shows(tiny_graph):
    figures = inspect_graph(tiny_graph.view(k=3, queries=np.arange(20)))
    assert (figures.queries, figures.k, figures.edges, figures.labelled_queries) == (20, 3, 60, 20)
    assert figures.near_duplicates.queries.of == 20
    shown = {row for query in range(20) for row in tiny_graph.neighbors[query, :3].tolist()}
    assert figures.near_duplicates.passages.of == len(shown)


def test_a_crowded_graph_is_warned_of_with_a_k_that_fits(tiny_dataset, tiny_features, tmp_path):
    settings = GraphSettings(k=20, edge_features=())
    figures = inspect_graph(build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph"))
    (warning,) = (line for line in figures.warnings if "hubs" in line)
    assert "30.0 queries per passage" in warning
    assert "Try k = 10" in warning
    assert f"Warning: {warning}" in " ".join(figures.to_text().split())


def test_a_graph_without_labels_and_one_without_warnings_are_shown(hand_made):
    text = inspect_graph(hand_made([[0, 1], [2, 3]])).to_text()
    assert "no query has a label" in text
    assert "no passage has two labelled questions" in text
    assert "it does not say where its dataset lies" in text
    fine = inspect_graph(hand_made([[0, 1]])).model_copy(update={"warnings": []})
    assert fine.to_text().endswith("\nNo warnings.")


def test_of_many_ranks_some_are_shown_the_last_among_them():
    ranks = shown_ranks({str(rank): rank / 60 for rank in range(1, 61)})
    assert list(ranks) == ["1", "2", "3", "5", "10", "15", "20", "25", "50", "60"]
    assert ranks["60"] == 1
    assert list(shown_ranks({str(rank): 0.5 for rank in range(1, 13)})) == [str(rank) for rank in range(1, 13)]


def test_bytes_are_in_the_unit_that_suits_them():
    assert [in_bytes(count) for count in (0, 999, 1000, 2**20, 3.5 * 2**30, 2**42)] == [
        "0 B",
        "999 B",
        "1.0 KiB",
        "1.0 MiB",
        "3.5 GiB",
        "4,096.0 GiB",
    ]
