import shutil

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.graph import GraphSettings, build_graph, neighborhood
from gnnretrieval.graph.neighborhood import count_neighbors, passages_of_query, queries_of_passage, to_networkx


def test_the_passages_of_a_query_are_its_neighbours_in_order_with_their_texts(tiny_graph, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    query, found = passages_of_query(tiny_graph, "train-07")
    texts = {passage.id: passage.full_text for passage in dataset.passages()}
    assert query.text == next(q.text for q in dataset.queries() if q.id == "train-07")
    assert [node.id for node in found] == [f"p{row:02d}" for row in tiny_graph.neighbors[query.row]]
    assert [node.text for node in found] == [texts[node.id] for node in found]
    assert [(node.rank, node.retrieved) for node in found if node.retrieved] == [
        (1, True),
        (2, True),
        (3, True),
        (4, True),
    ]
    assert [node.id for node in found if not node.retrieved] == ["p07"]
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
        retrieved = {(node.id, node.rank, node.score) for node in found if node.retrieved}
        assert retrieved <= expected
        assert {(id_, score) for id_, _, score in expected} == {(node.id, node.score) for node in found}
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


def test_only_the_best_are_read_where_a_number_is_given(tiny_graph):
    row = int(tiny_graph.degrees().argmax())
    everything = queries_of_passage(tiny_graph, f"p{row:02d}")[1]
    assert queries_of_passage(tiny_graph, f"p{row:02d}", 3)[1] == everything[:3]
    assert passages_of_query(tiny_graph, "train-07", 2)[1] == passages_of_query(tiny_graph, "train-07")[1][:2]


def test_the_neighbours_of_a_view_are_its_own_edges(tiny_graph):
    view = tiny_graph.view(k=2, queries=np.arange(30))
    row = int(view.degrees().argmax())
    _, found = queries_of_passage(view, f"p{row:02d}")
    assert len(found) == view.degrees()[row] == count_neighbors(view, row, is_query=False)
    assert all((node.rank <= 2 or not node.retrieved) and int(node.id[-2:]) < 30 for node in found)
    assert len(passages_of_query(view, "train-07")[1]) == count_neighbors(view, 7, is_query=True) == 2
    assert passages_of_query(view, "train-40")[1] == []
    assert count_neighbors(view, 40, is_query=True) == 0


def test_an_unknown_id_suggests_the_nearest_and_the_other_kind_is_named(tiny_graph):
    with pytest.raises(InputError, match=r"no passage 'p3O'.* Did you mean 'p3"):
        queries_of_passage(tiny_graph, "p3O")
    with pytest.raises(InputError, match="Did you mean 'train-07'"):
        passages_of_query(tiny_graph, "train_07")
    with pytest.raises(InputError, match="'train-07' is a query, not a passage: add is_query = True"):
        queries_of_passage(tiny_graph, "train-07")
    with pytest.raises(InputError, match="'p07' is a passage, not a query: leave out is_query = True"):
        passages_of_query(tiny_graph, "p07")


def test_a_networkx_neighbourhood_holds_the_edges_of_each_hop_with_their_figures(tiny_graph):
    row = int(tiny_graph.degrees().argmax())
    start = ("passage", f"p{row:02d}")
    near = to_networkx(tiny_graph, [start[1]])
    _, found = queries_of_passage(tiny_graph, start[1])
    assert set(near) == {start, *(("query", node.id) for node in found)}
    for node in found:
        edge = near.edges[("query", node.id), start]
        assert edge == {name: getattr(node, name) for name in ("score", "rank", "labelled", "retrieved")}
    far = to_networkx(tiny_graph, [start[1]], hops=2)
    expected = {
        (("query", node.id), ("passage", other.id))
        for node in found
        for other in passages_of_query(tiny_graph, node.id)[1]
    }
    assert set(far.edges) == expected
    assert {far.nodes[node]["hop"] for node in far} == {0, 1, 2}
    kinds = {("passage" if name.startswith("p") else "query") == data["kind"] for (_, name), data in far.nodes.items()}
    assert kinds == {True}
    text = far.nodes[start]["text"]
    assert text == queries_of_passage(tiny_graph, start[1])[0].full_text


def test_a_networkx_neighbourhood_is_bounded_and_starts_from_several_nodes_of_either_kind(tiny_graph):
    bounded = to_networkx(tiny_graph, ["train-03", "train-07", "train-03"], is_query=True, most=2)
    assert sum(data["hop"] == 0 for _, data in bounded.nodes(data=True)) == 2
    assert {degree for node, degree in bounded.out_degree() if node[0] == "query"} == {2}
    assert set(to_networkx(tiny_graph, ["p07"], hops=0)) == {("passage", "p07")}
    with pytest.raises(InputError, match="'nobody'"):
        to_networkx(tiny_graph, ["nobody"])


def test_a_passage_joined_by_its_label_alone_has_the_dual_encoder_s_rank(tiny_graph):
    """Its place is the last, and it may be ranked far below; from both ends, and as a drawing's edge."""
    similarity = tiny_graph.similarity
    passages, queries = (
        similarity.prepare_array(np.asarray(array))
        for array in (tiny_graph.passage_features, tiny_graph.query_features)
    )
    below = 0
    with tiny_graph.texts() as texts:
        ids = texts.query_ids()
    for row, id_ in enumerate(ids):
        for node in passages_of_query(tiny_graph, id_)[1]:
            if node.retrieved:
                continue
            assert node.labelled
            passage = int(node.id[1:])
            scores = passages @ queries[row]
            assert node.rank == 1 + int((np.delete(scores, passage) > scores[passage]).sum()) > 5
            (same,) = (one for one in queries_of_passage(tiny_graph, node.id)[1] if one.id == id_)
            assert (same.rank, same.retrieved) == (node.rank, False)
            edge = to_networkx(tiny_graph, [id_], is_query=True).edges[("query", id_), ("passage", node.id)]
            assert (edge["rank"], edge["retrieved"]) == (node.rank, False)
            below += 1
    assert below > 0


def test_a_retrieved_passage_keeps_its_rank_where_a_label_edge_replaced_one_above_it(
    tiny_dataset, tiny_features, tmp_path
):
    """The passages below the replaced one move up in the list, and were retrieved where they were."""
    dataset = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, dataset)
    plain = build_graph(
        Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=3, label_edges=False), tmp_path / "a"
    )
    with plain.texts() as texts:
        ids, passages = texts.query_ids(), texts.passage_ids()
    first, second, third = plain.neighbors[0].tolist()
    missing = next(row for row in range(40) if row not in (first, second, third))
    with (dataset / "qrels" / "train.tsv").open("a") as file:
        file.writelines(f"{ids[0]}\t{passages[row]}\t1\n" for row in (third, missing))
    store = build_graph(Dataset.open(dataset), tiny_features, GraphSettings(k=3), tmp_path / "b")
    assert third in store.neighbors[0, :2].tolist()
    (node,) = (one for one in passages_of_query(store, ids[0])[1] if one.id == passages[third])
    assert (node.rank, node.retrieved) == (3, True)
    (node,) = (one for one in queries_of_passage(store, passages[third])[1] if one.id == ids[0])
    assert (node.rank, node.retrieved) == (3, True)


def test_in_a_large_graph_the_rank_of_a_label_edge_is_not_counted(tiny_graph, monkeypatch):
    monkeypatch.setattr(neighborhood, "_SCANNED", tiny_graph.num_passages)  # one passage's scan
    counted = []
    for row in range(tiny_graph.num_passages):
        found = queries_of_passage(tiny_graph, f"p{row:02d}")[1]
        counted.append([node.rank is not None for node in found if not node.retrieved])
    assert all(one[:1] == [True] and not any(one[1:]) for one in counted if one)
    assert max(map(len, counted)) > 1
