import json

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph import open_graph
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.edges.labels import with_labels
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.graph.inspection.connectivity import recall_by_rank
from gnnretrieval.graph.settings import GraphSettings

SIMILARITY = Similarity(normalize=False, scale=1.0)
PASSAGES = np.array([[9.0], [8.0], [7.0], [6.0], [5.0], [4.0]])


def put(rows: list[list[int]], labels: list[tuple[int, int]]):
    found = np.array(rows)
    queries = np.ones((len(rows), 1))
    scores = PASSAGES[found][:, :, 0].astype(np.float32)
    return with_labels(found, scores, np.array(labels).reshape(-1, 2), queries, PASSAGES, SIMILARITY)


def test_a_relevant_passage_that_was_not_found_takes_the_last_place():
    rows, scores, changed, count = put([[0, 1, 2], [0, 1, 2]], [(0, 1), (1, 4)])
    assert rows.tolist() == [[0, 1, 2], [0, 1, 4]]
    assert scores.tolist() == [[9, 8, 7], [9, 8, 5]]
    assert count == 1
    assert changed.tolist() == [1]


def test_several_stand_by_score_and_no_relevant_one_gives_way():
    rows, _, _, count = put([[0, 1, 2]], [(0, 2), (0, 5), (0, 3)])
    assert rows.tolist() == [[2, 3, 5]]
    assert count == 2
    rows, _, _, count = put([[0, 1, 2]], [(0, 2), (0, 3), (0, 4), (0, 5)])
    assert rows.tolist() == [[2, 3, 4]]
    assert count == 2


@pytest.fixture(scope="module")
def labelled_graph(tiny_dataset, tiny_features, tmp_path_factory):
    settings = GraphSettings(k=2, label_edges=True, edge_features=("score", "label"))
    return build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path_factory.mktemp("g") / "graph")


def test_every_label_is_an_edge_and_says_so(labelled_graph, tiny_dataset, tiny_features, tmp_path):
    store = labelled_graph
    plain = build_graph(
        Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=2, label_edges=False), tmp_path / "plain"
    )
    assert not plain.label_edges().reshape(-1, 2).any(1).all()
    of_labels = store.label_edges().reshape(store.num_queries, 2)
    assert of_labels.sum() == len(store.labels)
    features = store.edge_arrays.cheap
    np.testing.assert_array_equal(features[:, :, 1], of_labels)
    np.testing.assert_array_equal(features[:, :, 0], store.scores.astype(np.float16))
    assert (np.diff(store.scores, axis=1) <= 0).all()


def test_a_view_names_its_label_edges_by_the_stores_own_edges(labelled_graph):
    view = labelled_graph.view(k=1)
    assert view.label_edges().shape == (2 * labelled_graph.num_queries,)


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_added_queries_have_their_label_edges_as_if_built_with_them(
    tiny_dataset, tiny_features, labelled_graph, tmp_path
):
    place = tmp_path / "graph"
    settings = GraphSettings(k=2, label_edges=True, edge_features=("score", "label"))
    build_graph(Dataset.open(tiny_dataset), tiny_features, settings, place)
    queries = write_lines(tmp_path / "queries.jsonl", [{"_id": "new", "text": "something else"}])
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nnew\tp39\t1\n")
    added = read_additions(open_graph(place), queries=queries, qrels=qrels)
    assert added is not None
    store = add_to_graph(place, added)
    assert 39 in store.neighbors[60]
    assert store.edge_arrays.cheap[60, :, 1].tolist() == (store.neighbors[60] == 39).astype(float).tolist()
    np.testing.assert_array_equal(store.neighbors[:60], labelled_graph.neighbors)


def test_what_was_found_is_known_and_the_recall_ceiling_is_of_that(
    labelled_graph, tiny_dataset, tiny_features, tmp_path
):
    plain = build_graph(
        Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=2, label_edges=False), tmp_path / "plain"
    )
    assert not np.array_equal(labelled_graph.neighbors, plain.neighbors)
    for part in (slice(60), slice(7, 31), slice(0)):
        for ours, theirs in zip(labelled_graph.retrieved(part), plain.retrieved(part), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert recall_by_rank(labelled_graph) == recall_by_rank(plain)
    assert recall_by_rank(labelled_graph.view(k=1)) == recall_by_rank(plain.view(k=1))


def test_passages_can_hear_only_the_queries_whose_hard_negative_they_are(labelled_graph):
    view = labelled_graph.view(passage_edges="hard-negatives")
    everyone = np.arange(view.num_passages)
    edges, offsets = view.found_by(everyone)
    of_labels = labelled_graph.label_edges()
    assert of_labels.any()
    assert set(edges) == set(np.flatnonzero(~of_labels))
    assert view.degrees().tolist() == np.diff(offsets).tolist()
    before, after = labelled_graph.subgraph(everyone), view.subgraph(everyone)
    assert after.passage_edges.tolist() == edges.tolist()
    heard = np.isin(before.queries, after.queries)
    assert after.query_edges.reshape(-1, 2).tolist() == before.query_edges.reshape(-1, 2)[heard].tolist()
    assert view.neighbors.tolist() == labelled_graph.neighbors.tolist()
    dropped = ~of_labels & (np.arange(len(of_labels)) % 2 == 0)
    both = set(view.subgraph(everyone, dropped=dropped).passage_edges)
    assert both == set(np.flatnonzero(~of_labels & ~dropped))
    assert labelled_graph.ignored is None
