"""Ranking by a passage's vector and by its nearest training question."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index import build_index
from gnnretrieval.index.hybrid import Ranker, RankingSettings
from gnnretrieval.index.retriever import Retriever
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.nn.label_messages import message_vectors, question_vectors
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.gnn import ladder, messages
from gnnretrieval.training.gnn.ladder import Climb, message_graph

WEIGHT = 0.4


@pytest.fixture(scope="module")
def made(tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    """A model with heads and other messages for its questions, and its index."""
    place, settings = tmp_path_factory.mktemp("questions"), TrainSettings(evidence=1.0)
    with pytest.MonkeyPatch.context() as patch:  # the label mean alone would answer all
        for name, value in (("STEPS", (30, 90)), ("ENOUGH", 1), ("MEANS", (0.0, 0.1)), ("LARGE_MEANS", ())):
            patch.setattr(ladder, name, value)

        def others(measure, start, measured, **settings):
            return Climb(start._replace(mean=0.3, rounds=0, prior=-0.1, questions=WEIGHT), 0.5, 0.3, 0.2, {}, 0.001, [])

        patch.setattr(messages, "climb_with_questions", others)
        model = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, place / "model")
    assert model.load_messages().heads is not None
    return model, build_index(embed_passages(model, tiny_graph, place / "embeddings"), place / "index")


@pytest.fixture(scope="module")
def asked(tiny_dataset, tiny_features):
    texts = {query.id: query.text for query in Dataset.open(tiny_dataset).queries_of("test")}
    return texts, tiny_features.queries[tiny_features.rows_of(texts)]


def expected_scores(model, graph, vectors):
    """The module's equation, pair by pair."""
    whole, (heads, chosen) = message_graph(graph), model.load_questions()
    passages = message_vectors(whole, heads, chosen).numpy()
    questions = question_vectors(whole, heads, chosen).numpy()
    scores = np.asarray(vectors, dtype=np.float32) @ passages.T
    nearest = scores.copy()
    for query, passage in whole.labels.tolist():
        nearest[:, passage] = np.maximum(nearest[:, passage], np.asarray(vectors, np.float32) @ questions[query])
    return (1 - WEIGHT) * scores + WEIGHT * nearest


def test_scores_are_those_of_the_equation_over_the_messages_that_were_chosen_for_it(made, asked, tiny_graph):
    model, index = made
    texts, vectors = asked
    found = Ranker(index, RankingSettings(nearest_questions=WEIGHT), "cpu", tiny_graph, model).run(texts, vectors, 10)
    scores, ids = expected_scores(model, tiny_graph, vectors), index.texts.passage_ids()
    rows = {id_: row for row, id_ in enumerate(ids)}
    assert model.load_questions().messages._replace(questions=0.0) != model.load_messages().messages
    for number, ranking in enumerate(found.values()):
        best = np.argsort(-scores[number])
        assert [one.passage_id for one in ranking] == [ids[row] for row in best[:10]]
        got = [scores[number][rows[one.passage_id]] for one in ranking]
        np.testing.assert_allclose([one.score for one in ranking], got, atol=2e-3)


def test_few_hits_are_the_first_of_many(made, asked, tiny_graph):
    model, index = made
    ranker = Ranker(index, RankingSettings(nearest_questions=WEIGHT), "cpu", tiny_graph, model)
    whole = ranker.run(*asked, 40)
    for depth in range(1, 8):
        assert ranker.run(*asked, depth) == {query: ranking[:depth] for query, ranking in whole.items()}


def test_an_index_without_passages_finds_nothing(made, asked, tiny_graph, tmp_path):
    model, _ = made
    copy = build_index(embed_passages(model, tiny_graph, tmp_path / "embeddings"), tmp_path / "index")
    left = remove_passages(copy.path, copy.texts.passage_ids())
    found = Ranker(left, RankingSettings(nearest_questions=WEIGHT), "cpu", tiny_graph, model).run(*asked, 5)
    assert set(map(len, found.values())) == {0}


def test_a_graph_with_more_passages_than_the_index_is_refused(made, asked, tiny_graph, tmp_path):
    model, index = made
    short = SimpleNamespace(num_passages=tiny_graph.num_passages + 1, path=tiny_graph.path)
    with pytest.raises(ArtifactError, match="other passages than the index"):
        Ranker(index, RankingSettings(nearest_questions=WEIGHT), "cpu", short, model)


def test_a_removed_passage_is_not_found_by_its_questions_either(made, asked, tiny_graph, tmp_path):
    model, index = made
    texts, vectors = asked
    settings = RankingSettings(nearest_questions=1.0)
    first = next(iter(Ranker(index, settings, "cpu", tiny_graph, model).run(texts, vectors, 1).values()))[0].passage_id
    copy = build_index(embed_passages(model, tiny_graph, tmp_path / "embeddings"), tmp_path / "index")
    left = remove_passages(copy.path, [first])
    found = Ranker(left, settings, "cpu", tiny_graph, model).run(texts, vectors, len(left.texts.passage_ids()))
    assert all(first not in {one.passage_id for one in ranking} for ranking in found.values())


def test_a_graph_layer_and_an_index_without_a_graph_are_refused(
    made, asked, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    texts, _ = asked
    settings = TrainSettings(layer="gat", epochs=1)
    model = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")
    with pytest.raises(ArtifactError, match="layer = linear"):
        Ranker(made[1], RankingSettings(nearest_questions=WEIGHT), "cpu", tiny_graph, model)
    plain = Retriever(build_index(tiny_features, tmp_path / "plain"), ranking=RankingSettings(nearest_questions=WEIGHT))
    with pytest.raises(ArtifactError, match="no graph"):
        plain.search(next(iter(texts.values())))


def test_the_command_ranks_by_them(made, asked, tiny_graph):
    model, index = made
    texts, vectors = asked
    query, text = next(iter(texts.items()))
    arguments = ["search", text, "--index", str(index.path), "--k", "5", "--nearest-questions", str(WEIGHT), "--json"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    ranker = Ranker(index, RankingSettings(nearest_questions=WEIGHT), "cpu", tiny_graph, model)
    expected = [one.passage_id for one in ranker.run({query: text}, vectors[:1], 5)[query]]
    assert [hit["id"] for hit in json.loads(result.stdout)["hits"]] == expected
    refused = CliRunner().invoke(cli, [*arguments, "--pipeline"])
    assert "leave out --nearest-questions" in refused.output
