import json
import shutil

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.graph import GraphSettings, build_graph, open_graph


def ranked(dataset, features, query_ids) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all pairs, and passages by score descending, equal scores by row."""
    queries = features.similarity.prepare_array(features.queries[features.rows_of(query_ids)])
    scores = queries @ features.similarity.prepare_array(features.passages).T
    return scores, np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores), axis=1)


def test_each_training_query_is_joined_to_its_exact_top_k(tiny_graph, tiny_dataset, tiny_features):
    dataset = Dataset.open(tiny_dataset)
    query_ids = list(dataset.split("train"))
    scores, order = ranked(dataset, tiny_features, query_ids)
    assert tiny_graph.neighbors.dtype == np.uint32
    found, found_scores = tiny_graph.retrieved(slice(60))
    assert found.tolist() == order[:, :5].tolist()
    np.testing.assert_allclose(found_scores, np.take_along_axis(scores, order[:, :5], 1), rtol=1e-5)
    np.testing.assert_allclose(tiny_graph.scores, np.take_along_axis(scores, tiny_graph.neighbors, 1), rtol=1e-5)
    with tiny_graph.texts() as texts:
        assert texts.query_ids() == query_ids
        assert texts.passage_ids() == dataset.passage_ids
        assert {query.split for query in texts.queries()} == {"train"}


def test_rows_of_features_belong_to_the_ids(tiny_graph, tiny_features):
    with tiny_graph.texts() as texts:
        rows = tiny_features.rows_of(texts.query_ids())
    assert np.array_equal(tiny_graph.query_features, tiny_features.queries[rows])
    assert np.array_equal(tiny_graph.passage_features, tiny_features.passages)


def test_edge_features_are_score_reciprocal_rank_share_of_the_best_bm25_and_the_label(tiny_graph, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    found = tiny_graph.edge_arrays.cheap
    assert found.shape == (60, 5, 4)
    assert np.array_equal(found[:, :, 3], tiny_graph.label_edges().reshape(60, 5))
    assert found.dtype == np.float16
    assert np.array_equal(found[:, :, 0], tiny_graph.scores.astype(np.float16))
    np.testing.assert_allclose(found[:, :, 1], np.tile([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], (60, 1)), rtol=1e-3)
    bm25 = BM25(passage.full_text for passage in dataset.passages())
    texts = [query.text for query in dataset.queries_of("train")]
    for row in (0, 17, 59):
        scores = bm25.scores(texts[row])
        np.testing.assert_allclose(found[row, :, 2], scores[tiny_graph.neighbors[row]] / scores.max(), atol=1e-3)
    assert ((found[:, :, 2] >= 0) & (found[:, :, 2] <= 1)).all()
    assert found[:, :, 2].max() == 1


def test_edge_features_are_in_the_order_of_the_settings(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    settings = GraphSettings(edge_features=("bm25", "score"))
    graph = build_graph(Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "graph")
    assert np.array_equal(graph.edge_arrays.cheap, np.array(tiny_graph.edge_arrays.cheap)[:, :, [2, 0]])


def test_a_graph_without_edge_features_opens_and_converts(tiny_dataset, tiny_features, tmp_path):
    graph = build_graph(Dataset.open(tiny_dataset), tiny_features, GraphSettings(edge_features=()), tmp_path / "graph")
    assert (graph.edge_dim, graph.edge_arrays.cheap.shape) == (0, (60, 5, 0))
    data = graph.to_hetero_data()
    assert data["query", "found", "passage"].edge_index.shape == (2, 300)


def test_a_graph_built_twice_has_equal_hashes(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    again = build_graph(Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=5), tmp_path / "graph")
    assert again.hash == tiny_graph.hash
    assert again.meta["files"] == tiny_graph.meta["files"]


def test_labels_are_the_relevant_pairs_alone(tiny_graph):
    with tiny_graph.texts() as texts:
        queries, passages = texts.query_ids(), texts.passage_ids()
    labels = tiny_graph.labels.tolist()
    assert labels == sorted(labels)
    assert [queries.index("train-03"), passages.index("p30")] in labels
    assert [queries.index("train-04"), passages.index("p31")] not in labels
    assert len(labels) == 61


def test_queries_without_a_relevant_passage_are_left_out(tiny_dataset, tiny_settings, tmp_path):
    from gnnretrieval.encoders.features import encode_dataset

    shutil.copytree(tiny_dataset, tmp_path / "dataset")
    (tmp_path / "dataset" / "qrels" / "train.tsv").write_text("train-00\tp00\t1\ntrain-01\tp01\t0\ntrain-02\tp02\t-1\n")
    dataset = Dataset.open(tmp_path / "dataset")
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    graph = build_graph(dataset, features, GraphSettings(), tmp_path / "graph")
    with graph.texts() as texts:
        assert texts.query_ids() == ["train-00"]
    (tmp_path / "dataset" / "qrels" / "train.tsv").write_text("train-01\tp01\t0\n")
    with pytest.raises(GnnRetrievalError, match="no query with a relevant passage"):
        build_graph(Dataset.open(tmp_path / "dataset"), features, GraphSettings(), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_k_of_the_whole_corpus_works_and_one_more_is_refused(tiny_dataset, tiny_features, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    graph = build_graph(dataset, tiny_features, GraphSettings(k=40, edge_features=()), tmp_path / "all")
    assert (np.sort(graph.neighbors, axis=1) == np.arange(40)).all()
    with pytest.raises(GnnRetrievalError, match=r"k is 41, but .* has only 40 passages"):
        build_graph(dataset, tiny_features, GraphSettings(k=41), tmp_path / "more")
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_features_of_another_dataset_are_refused(tiny_dataset, tiny_features, tmp_path):
    shutil.copytree(tiny_dataset, tmp_path / "dataset")
    corpus = tmp_path / "dataset" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace('"p39"', '"p99"'))
    with pytest.raises(ArtifactError, match="these features were made from other texts than"):
        build_graph(Dataset.open(tmp_path / "dataset"), tiny_features, GraphSettings(), tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_features_serve_every_folder_of_judgements_over_the_same_texts(tiny_dataset, tiny_features, tmp_path):
    shutil.copytree(tiny_dataset, tmp_path / "dataset")
    shutil.copytree(tmp_path / "dataset" / "qrels", tmp_path / "dataset" / "other")
    graph = build_graph(Dataset.open(tmp_path / "dataset", "other"), tiny_features, GraphSettings(), tmp_path / "graph")
    assert graph.num_queries == 60


def test_a_split_that_is_not_there_is_refused(tiny_dataset, tiny_features, tmp_path):
    with pytest.raises(InputError, match=r"there is no split 'trian'.* Did you mean 'train'"):
        build_graph(Dataset.open(tiny_dataset), tiny_features, GraphSettings(split="trian"), tmp_path / "graph")


def test_the_store_says_what_it_was_made_from(tiny_graph, tiny_dataset, tiny_features):
    dataset = Dataset.open(tiny_dataset)
    assert tiny_graph.meta["inputs"] == {"dataset": dataset.hash, "features": tiny_features.hash}
    assert tiny_graph.meta["dataset"] == dataset.provenance()
    assert tiny_graph.made_from("features") == tiny_features.path.resolve()
    assert tiny_graph.made_from("dataset") == tiny_dataset.resolve()
    assert tiny_graph.config == GraphSettings(k=5).model_dump(mode="json")
    assert json.loads((tiny_graph.path / "meta.json").read_text()) == open_graph(tiny_graph.path).meta


def test_features_of_another_width_than_they_say_are_damaged(tiny_dataset, tiny_features, tmp_path):
    shutil.copytree(tiny_features.path, tmp_path / "features")
    array = np.load(tmp_path / "features" / "passages.npy")
    file = tmp_path / "features" / "passages.npy"
    file.write_bytes(file.read_bytes().replace(f"({len(array)}, 32)".encode(), f"({len(array)}, 30)".encode()))
    with pytest.raises(ArtifactError, match="32"):
        build_graph(
            Dataset.open(tiny_dataset), open_features(tmp_path / "features"), GraphSettings(k=3), tmp_path / "graph"
        )


def test_scores_of_long_vectors_beyond_float16_stay_finite_edge_features(tiny_dataset, tmp_path, said):
    dataset, rng = Dataset.open(tiny_dataset), np.random.default_rng(0)
    passages, queries = (400 * rng.standard_normal((count, 8)).astype(np.float32) for count in (40, 80))
    features = Features.from_vectors(dataset, passages, queries, tmp_path / "features", similarity="dot")
    graph = build_graph(dataset, features, GraphSettings(k=5, edge_features=("score",)), tmp_path / "graph")
    scores, stored = np.asarray(graph.scores), np.asarray(graph.edge_arrays.cheap)[:, :, 0]
    assert scores.max() > 65504
    assert np.array_equal(stored, np.clip(scores, -65504, 65504).astype(np.float16))
    assert any("beyond 65,504 are cut to it in the edge feature score" in line for line in said)
