import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.graph.neighborhood import passages_of_query, queries_of_passage


def test_the_passages_of_a_query_are_its_neighbours_in_order_with_their_texts(tiny_graph, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    query, found = passages_of_query(tiny_graph, "train-07")
    texts = {passage.id: passage.full_text for passage in dataset.passages()}
    assert query.text == next(q.text for q in dataset.queries() if q.id == "train-07")
    assert [node.id for node in found] == [f"p{row:02d}" for row in tiny_graph.neighbors[query.row]]
    assert [node.text for node in found] == [texts[node.id] for node in found]
    assert [node.rank for node in found] == [1, 2, 3, 4, 5]
    assert [node.score for node in found] == tiny_graph.scores[query.row].tolist()
    relevant = {passage for passage, relevance in dataset.split("train")["train-07"].items() if relevance > 0}
    assert [node.labelled for node in found] == [node.id in relevant for node in found]


def test_the_queries_of_a_passage_are_all_that_found_it_best_first(tiny_graph, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    judged = dataset.split("train")
    with tiny_graph.texts() as texts:
        ids = texts.query_ids()
    labelled = 0
    for row in (0, 7, 15, 31):
        passage, found = queries_of_passage(tiny_graph, f"p{row:02d}")
        assert passage.row == row
        queries, ranks = np.nonzero(np.asarray(tiny_graph.neighbors) == row)
        expected = {(ids[q], int(r) + 1, float(tiny_graph.scores[q, r])) for q, r in zip(queries, ranks, strict=True)}
        assert {(node.id, node.rank, node.score) for node in found} == expected
        assert len(found) == len(expected)
        assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)
        assert all(node.labelled == (judged[node.id].get(passage.id, 0) > 0) for node in found)
        labelled += sum(node.labelled for node in found)
    assert labelled > 0


def test_a_passage_that_no_query_found_has_an_empty_list(tiny_graph):
    (row, *_) = np.flatnonzero(tiny_graph.degrees() == 0)
    assert queries_of_passage(tiny_graph, f"p{row:02d}")[1] == []


def test_an_unknown_id_is_an_error_that_names_it(tiny_graph):
    with pytest.raises(InputError, match="'p99'"):
        queries_of_passage(tiny_graph, "p99")
    with pytest.raises(InputError, match="'dev-00'"):
        passages_of_query(tiny_graph, "dev-00")
