"""Passages ranked by their sentences, against eq. 2 of DCSR worked by hand."""

import math

import numpy as np
import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import read_run
from gnnretrieval.encoders import encode_dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index import build_index, open_index
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.index.passage_neighbors import PassageNeighbors
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.index.search import index_run
from gnnretrieval.index.sentence_search import (
    features_run,
    has_answer,
    sentence_run,
    sentence_text,
    sentences_looked_at,
)

STARTS = np.array([0, 2, 3, 5])  # passages of 2, 1 and 2 sentences


def test_has_answer_worked_by_hand():
    """Scores log 4, log 3, log 2, log 1 have softmax 0.4, 0.3, 0.2, 0.1."""
    rows = np.array([2, 0, 1, 4])  # of passages 1, 0, 0, 2; sentence 3 was not found
    found = has_answer(rows, np.log([4.0, 3.0, 2.0, 1.0]), STARTS, scale=1.0)
    assert found.rows.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.scores, [1 - 0.7 * 0.8, 0.4, 0.1], rtol=1e-12)
    assert found.sentences.tolist() == [0, 0, 1]


def test_scores_are_times_the_similarities_scale():
    found = has_answer(np.array([0, 2]), np.array([0.9, 0.8]), STARTS, scale=20.0)
    odds = math.exp(20 * 0.1)
    np.testing.assert_allclose(found.scores, [odds / (odds + 1), 1 / (odds + 1)], rtol=1e-12)


def test_two_good_sentences_outrank_a_slightly_better_one():
    found = has_answer(np.array([2, 0, 1]), np.array([1.1, 1.0, 1.0]), STARTS, scale=1.0)
    assert found.scores[0] > found.scores[1]


def test_a_certain_sentence_and_a_hopeless_one_are_no_trouble():
    found = has_answer(np.array([0, 1, 2]), np.array([900.0, -900.0, -800.0]), STARTS, scale=1.0)
    assert found.scores.tolist() == [1.0, 0.0]
    (alone,) = has_answer(np.array([4]), np.array([-3.0]), STARTS, scale=1.0).scores
    assert alone == 1.0


def test_small_probabilities_keep_their_order():
    found = has_answer(np.array([0, 2, 3]), np.array([50.0, 1.0, 0.5]), STARTS, scale=1.0)
    assert 0 < found.scores[2] < found.scores[1] < 1e-20
    np.testing.assert_allclose(found.scores[1] / found.scores[2], math.exp(0.5), rtol=1e-9)


def test_rows_that_an_index_did_not_find_are_left_out():
    found = has_answer(np.array([2, -1, -1]), np.array([0.5, -3e38, -3e38]), STARTS, scale=1.0)
    assert (found.rows.tolist(), found.scores.tolist()) == ([1], [1.0])
    assert len(has_answer(np.array([-1]), np.array([0.0]), STARTS, scale=1.0).rows) == 0


def test_a_hundred_passages_worth_of_sentences_is_looked_at():
    assert sentences_looked_at(2_660, 1_000) == 266
    assert sentences_looked_at(7, 3) == 7


def test_the_text_of_a_sentence():
    assert sentence_text("Title. One is. Two!", 1) == "One is."
    assert sentence_text("  ", 0) == "  "


@pytest.fixture(scope="module")
def features(tiny_dataset, tiny_settings, tmp_path_factory) -> Features:
    settings = tiny_settings.model_copy(update={"sentences": "mean"})
    return encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path_factory.mktemp("made") / "features")


@pytest.fixture(scope="module")
def index(features) -> Index:
    return build_index(features, features.path.with_name("index"), sentences=True)


def test_a_run_is_has_answer_over_all_sentences_where_all_are_looked_at(features):
    ids = ["test-00", "test-05"]
    run = sentence_run(features, ids, features.queries[features.rows_of(ids)], 1000)
    sentences = features.similarity.prepare_array(features.sentences).astype(np.float64)
    query = features.similarity.prepare_array(features.queries[features.rows_of(["test-05"])])[0].astype(np.float64)
    p = np.exp(20 * sentences @ query)
    p /= p.sum()
    starts = features.sentence_starts
    expected = [1 - np.prod(1 - p[starts[row] : starts[row + 1]]) for row in range(40)]
    found = dict(run["test-05"])
    assert len(found) == 40
    np.testing.assert_allclose([found[f"p{row:02d}"] for row in range(40)], expected, rtol=1e-4)
    scores = [passage.score for passage in run["test-05"]]
    assert scores == sorted(scores, reverse=True)


def test_passages_have_no_neighbours_by_sentences(index):
    with pytest.raises(ArtifactError, match="an index of sentences has no vector of a passage"):
        PassageNeighbors(index, None, 3)


def test_depth_cuts_a_run(features):
    queries = features.queries[features.rows_of(["test-00"])]
    whole = sentence_run(features, ["test-00"], queries, 1000)["test-00"]
    assert sentence_run(features, ["test-00"], queries, 3)["test-00"] == whole[:3]


def test_passages_of_equal_score_come_in_the_order_of_every_run(features, monkeypatch):
    equal = np.zeros_like(features.sentences)
    monkeypatch.setattr(Features, "sentences", equal)
    monkeypatch.setattr(Features, "sentence_starts", np.arange(41) * len(equal) // 40)
    counts = np.diff(features.sentence_starts)
    (found,) = sentence_run(features, ["q"], np.ones((1, 32)), 1000).values()
    by_count = sorted((f"p{row:02d}" for row in range(40)), reverse=True)
    by_count.sort(key=lambda id_: counts[int(id_[1:])], reverse=True)
    assert [passage.passage_id for passage in found] == by_count


def test_passages_without_a_sentence_found_are_not_in_the_run(features, monkeypatch):
    monkeypatch.setattr("gnnretrieval.index.sentence_search._PASSAGES", 2)
    queries = features.queries[features.rows_of(["test-00"])]
    most = sentences_looked_at(len(features.sentences), 40)
    assert 0 < len(sentence_run(features, ["test-00"], queries, 1000)["test-00"]) <= most < 40


def test_features_are_ranked_by_sentences_where_they_have_such(features, tiny_features, index):
    ids = ["test-00", "test-01"]
    queries = features.queries[features.rows_of(ids)]
    assert features_run(features, ids, 10) == sentence_run(features, ids, queries, 10)
    whole = build_index(tiny_features, index.path.with_name("whole"))
    expected = index_run(whole, ids, queries, 10)
    found = features_run(tiny_features, ids, 10)
    assert [[p.passage_id for p in found[id_]] for id_ in ids] == [[p.passage_id for p in expected[id_]] for id_ in ids]


def test_the_index_ranks_as_the_features_do(features, index):
    ids = [f"test-{number:02d}" for number in range(10)]
    queries = features.queries[features.rows_of(ids)]
    by_index, exact = index_run(index, ids, queries, 5), sentence_run(features, ids, queries, 5)
    for id_ in ids:
        assert [passage.passage_id for passage in by_index[id_]] == [passage.passage_id for passage in exact[id_]]
        np.testing.assert_allclose([p.score for p in by_index[id_]], [p.score for p in exact[id_]], rtol=1e-4)


def test_the_index_says_what_it_is_of(features, index):
    assert open_index(index.path).is_of_sentences
    assert (index.meta["num_passages"], index.meta["num_sentences"]) == (40, len(features.sentences))
    assert index.meta["system"] == "sentences"
    assert index.faiss.ntotal == len(features.sentences)
    assert np.array_equal(index.sentence_starts, features.sentence_starts)


def test_a_hit_names_the_sentence_it_was_found_by(features, index, tiny_dataset):
    passage = next(passage for passage in Dataset.open(tiny_dataset).passages() if passage.title)
    searcher = Retriever(index)
    for question, sentence in ((passage.text, passage.text), (passage.title, f"{passage.title}.")):
        first = searcher.search(question, 3)[0]
        assert (first.rank, first.id, first.sentence) == (1, passage.id, sentence)
    hits = searcher.search(passage.text, 1000)
    assert [hit.rank for hit in hits] == list(range(1, 41))
    run = index_run(index, ["q"], searcher.encoder.encode([passage.text], "query"), 1000)["q"]
    assert [(hit.id, hit.score) for hit in hits] == run


def test_whole_passages_have_no_index_of_sentences(tiny_features, tmp_path):
    with pytest.raises(ArtifactError, match="read whole"):
        build_index(tiny_features, tmp_path / "index", sentences=True)
    whole = build_index(tiny_features, tmp_path / "whole")
    with pytest.raises(ArtifactError, match=r"index of whole passages\. Build one with --sentences"):
        sentence_run(whole, ["q"], np.ones((1, 32)), 5)


def run_cli(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_commands_encode_index_and_search_by_sentences(tiny_dataset, tiny_checkpoint, tmp_path):
    options = ("--checkpoint", tiny_checkpoint, "--precision", "float32", "--sentences", "mean")
    made = run_cli("encoder", "encode", tiny_dataset, *options, "--out", tmp_path / "features")
    assert made.exit_code == 0, made.output
    made = run_cli("index", "build", tmp_path / "features", "--sentences", "--out", tmp_path / "index")
    assert made.exit_code == 0, made.output
    assert "40 passages by 66 sentences" in made.output
    passage = next(passage for passage in Dataset.open(tiny_dataset).passages() if passage.title)
    found = run_cli("search", passage.title, "--index", tmp_path / "index")
    assert found.exit_code == 0, found.output
    assert f"matched: {passage.title}." in found.output
    run = tmp_path / "sentences.run"
    found = run_cli("search", "--index", tmp_path / "index", "--data", tiny_dataset, "--run", run)
    assert found.exit_code == 0, found.output
    assert len(read_run(run)) == 10


def test_changed_and_sentences_do_not_go_together(features, tmp_path):
    found = run_cli("index", "build", features.path, "--sentences", "--changed", "--out", tmp_path / "index")
    assert found.exit_code == 2
    assert "--changed goes with" in found.output
