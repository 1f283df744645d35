import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders import FunctionEncoder
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.errors import InputError
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import open_graph
from gnnretrieval.index import build_index, what_if
from gnnretrieval.index.attention_explainer import AttentionExplainer
from gnnretrieval.index.explanations import GraphChange, NoWhatIf
from gnnretrieval.index.message_explainer import MessagesExplainer
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.index.what_if import Change
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.nn.label_messages import Heads, Messages, message_vectors, several_vectors
from gnnretrieval.training.gnn import message_part
from gnnretrieval.training.gnn.embedding import gated_contexts
from gnnretrieval.training.gnn.embeddings import open_embeddings
from gnnretrieval.training.gnn.graph_tensors import edge_moments
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.message_part import TooLarge
from gnnretrieval.training.gnn.messages import TrainedMessages

GONE = 7  # train-07, labelled with p07
ALL = Messages(steps=1, mean=0.3, rounds=2, step_size=0.3, prior=0.1, scaling=0.5, level=0.4)


@pytest.fixture(scope="module")
def smaller(tiny_dataset, tiny_features, tmp_path_factory):
    """The graph built without train-07."""
    place = shutil.copytree(tiny_dataset, tmp_path_factory.mktemp("fewer") / "tiny")
    file = place / "qrels" / "train.tsv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith("train-07\t")))
    return build_graph(Dataset.open(place), tiny_features, GraphSettings(k=5), place.parent / "graph")


@pytest.fixture(scope="module")
def heads(tiny_graph):
    d = tiny_graph.dimension
    return Heads(*(torch.eye(d) + 0.1 * torch.randn(2, d, d, generator=torch.Generator().manual_seed(0))))


def explainer(store, heads, messages=ALL):
    return MessagesExplainer(store, TrainedMessages(heads, messages))


def change(explainer, without=(), vectors=None, neighbors=None, passage=0, scale=1.0):
    store = explainer.store
    vectors = np.empty((0, store.dimension), dtype=np.float32) if vectors is None else vectors
    neighbors = np.empty((0, store.k), dtype=np.int64) if neighbors is None else neighbors
    return GraphChange(np.array(without, dtype=np.int64), vectors, neighbors, passage, scale)


def touched(store):
    return np.array([7, *sorted({*store.neighbors[GONE].tolist()} - {7})])


@pytest.mark.parametrize("messages", [ALL, ALL._replace(rounds=0), ALL._replace(scaling=0.0, rounds=3)])
def test_linear_vectors_are_those_of_a_graph_built_without_the_question(tiny_graph, smaller, heads, messages):
    rows, one = touched(tiny_graph), explainer(tiny_graph, heads, messages)
    found = one.vectors_if(rows, change(one, [GONE]))
    expected = message_vectors(message_graph(smaller), heads, messages)[rows]
    assert np.abs(found - expected.numpy()).max() < 1e-5
    assert np.abs(found[0] - one.vectors_if(rows, change(one))[0]).max() > 1e-2


def test_linear_vectors_are_those_of_a_graph_with_the_question_added(tiny_graph, heads, tmp_path):
    path = shutil.copytree(tiny_graph.path, tmp_path / "graph")
    text = tiny_graph.texts().query(22).text + " more"
    larger = open_graph(path).add(queries={"new": text}, qrels={"new": {"p31": 1}})
    one = explainer(tiny_graph, heads)
    neighbors = larger.neighbors[60:].astype(np.int64)
    rows = np.array([31, *sorted({*neighbors[0].tolist()} - {31})])
    vectors = larger.query_features[60:].astype(np.float32)
    found = one.vectors_if(rows, change(one, vectors=vectors, neighbors=neighbors, passage=31))
    expected = message_vectors(message_graph(larger), heads, ALL)[rows].numpy()
    assert np.abs(found - expected).max() < 1e-5
    assert np.abs(found - one.vectors_if(rows, change(one))).max() > 1e-2


def test_an_added_question_is_as_long_as_one_of_the_graph_where_the_first_is_zero(tmp_path):
    def by_letters(texts):
        return np.array([[5.0 * text.count(letter) for letter in "abc"] for text in texts])

    queries = {"q1": "?", "q2": "abba", "q3": "cab"}
    dataset = Dataset.from_records({"p1": "ab", "p2": "c"}, queries, dict.fromkeys(queries, "p1"), tmp_path / "data")
    encoder = FunctionEncoder(by_letters, name="letters", similarity="dot")
    store = build_graph(dataset, encode_dataset(dataset, encoder, tmp_path / "f"), GraphSettings(k=1), tmp_path / "g")
    graph = message_graph(store)
    added = message_part.as_added(graph, store, by_letters(["cab"]), np.zeros((1, 1), dtype=np.int64), 0)
    torch.testing.assert_close(added.queries[0], graph.queries[2])


def test_scale_0_leaves_the_head_alone_and_1_what_training_kept(tiny_graph, heads):
    rows, one = np.array([3, 5]), explainer(tiny_graph, heads)
    graph = message_graph(tiny_graph)
    none = message_vectors(graph, heads, Messages(steps=1))[rows].numpy()
    assert np.allclose(one.vectors_if(rows, change(one, scale=0.0)), none, atol=1e-5)
    assert np.allclose(one.vectors_if(rows, change(one)), message_vectors(graph, heads, ALL)[rows].numpy(), atol=1e-5)


def test_a_part_that_is_too_large_is_refused(tiny_graph, heads, monkeypatch):
    monkeypatch.setattr(message_part, "MOST_NODES", 10)
    one = explainer(tiny_graph, heads)
    with pytest.raises(TooLarge, match="more than 10 passages and questions"):
        one.vectors_if(np.array([3]), change(one))


def test_a_model_without_messages_says_so(tiny_graph, heads):
    assert "no messages" in explainer(tiny_graph, heads, Messages(steps=1)).no_what_if
    assert explainer(tiny_graph, heads).no_what_if is None


ONE_PASS = Messages(steps=1, passes=1, update_size=0.5, prior=0.1)


def test_updates_without_the_question_are_those_of_a_graph_without_it(tiny_graph, heads):
    """In one step over all labels the pulls and pushes of the others do not depend on the question."""
    one, graph = explainer(tiny_graph, heads, ONE_PASS), message_graph(tiny_graph)
    rows, hidden = np.array([7]), torch.arange(len(graph.queries)) == GONE
    found = one.vectors_if(rows, change(one, [GONE]))
    expected = message_vectors(graph.without(hidden), heads, ONE_PASS)[rows].numpy()
    assert np.abs(found - expected).max() < 1e-5
    assert np.abs(found - one.vectors_if(rows, change(one))).max() > 1e-2


def test_updates_without_a_change_are_those_that_were_made(tiny_graph, heads):
    messages = ALL._replace(passes=3, update_size=0.2)
    one, rows = explainer(tiny_graph, heads, messages), np.array([7, 3, 31])
    expected = message_vectors(message_graph(tiny_graph), heads, messages)[rows].numpy()
    assert np.abs(one.vectors_if(rows, change(one)) - expected).max() < 1e-5
    alone = message_vectors(message_graph(tiny_graph), heads, Messages(steps=1))[rows].numpy()
    assert np.abs(one.vectors_if(rows, change(one, scale=0.0)) - alone).max() < 1e-5


def test_an_added_question_pulls_its_passage_alone(tiny_graph, heads):
    messages = Messages(steps=1, passes=3, update_size=0.2)
    one, rows = explainer(tiny_graph, heads, messages), np.array([31, 3])
    vectors = tiny_graph.query_features[22:23].astype(np.float32)
    neighbors = np.full((1, tiny_graph.k), 3, dtype=np.int64)
    found = one.vectors_if(rows, change(one, vectors=vectors, neighbors=neighbors, passage=31))
    before = one.vectors_if(rows, change(one))
    asked = message_graph(tiny_graph).queries[22].numpy()
    assert found[0] @ asked > before[0] @ asked + 1e-3
    assert np.abs(found[1] - before[1]).max() < 1e-6


SEVERAL = ALL._replace(questions=0.4)


def best_of_several(store, heads, asked, rows):
    """The best score of each passage's vectors."""
    vectors, passages = several_vectors(message_graph(store), heads, SEVERAL)
    return np.array([(vectors[passages == row] @ torch.from_numpy(asked)).max() for row in rows.tolist()])


def scores_if(one, rows, asked, tried):
    return one.with_questions(rows, one.vectors_if(rows, tried) @ asked, tried, asked)


def test_scores_by_several_vectors_are_those_of_a_graph_built_without_the_question(tiny_graph, smaller, heads):
    rows, one = touched(tiny_graph), explainer(tiny_graph, heads, SEVERAL)
    asked = message_graph(tiny_graph).queries[GONE].numpy()
    found = scores_if(one, rows, asked, change(one, [GONE]))
    np.testing.assert_allclose(found, best_of_several(smaller, heads, asked, rows), atol=1e-5)
    as_it_is = scores_if(one, rows, asked, change(one))
    np.testing.assert_allclose(as_it_is, best_of_several(tiny_graph, heads, asked, rows), atol=1e-5)
    own = [one.vectors_if(rows[:1], tried)[0] @ asked for tried in (change(one), change(one, [GONE]))]
    assert as_it_is[0] - found[0] > own[0] - own[1] + 1e-2  # the question's own vector is gone too


def test_scores_by_several_vectors_are_those_of_a_graph_with_the_question_added(tiny_graph, heads, tmp_path):
    path = shutil.copytree(tiny_graph.path, tmp_path / "graph")
    larger = open_graph(path).add(
        queries={"new": tiny_graph.texts().query(22).text + " more"}, qrels={"new": {"p31": 1}}
    )
    one, neighbors = explainer(tiny_graph, heads, SEVERAL), larger.neighbors[60:].astype(np.int64)
    rows = np.array([31, *sorted({*neighbors[0].tolist()} - {31})])
    tried = change(one, vectors=larger.query_features[60:].astype(np.float32), neighbors=neighbors, passage=31)
    asked = message_graph(larger).queries[60].numpy()
    found = scores_if(one, rows, asked, tried)
    np.testing.assert_allclose(found, best_of_several(larger, heads, asked, rows), atol=1e-5)
    assert found[0] > one.vectors_if(rows[:1], tried)[0] @ asked + 1e-2


def test_scale_0_leaves_a_passage_its_own_vector_and_a_large_one_its_nearest_question(tiny_graph, heads):
    one, rows = explainer(tiny_graph, heads, Messages(steps=1, questions=0.4)), np.array([7])
    asked, own = message_graph(tiny_graph).queries[GONE].numpy(), np.array([0.1], dtype=np.float32)
    of = {scale: one.with_questions(rows, own, change(one, scale=scale), asked)[0] for scale in (0.0, 1.0, 2.5, 9.0)}
    assert of[0.0] == own[0] < of[1.0] < of[2.5] == of[9.0]
    assert of[1.0] == pytest.approx(0.6 * own[0] + 0.4 * of[9.0])


def test_attention_s_vectors_are_those_of_a_graph_built_without_the_question(tiny_graph, smaller):
    torch.manual_seed(0)
    model = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for name, moments in zip(("edge_mean", "edge_deviation"), edge_moments(tiny_graph), strict=True):
        getattr(model, name).copy_(torch.from_numpy(moments))
    one = AttentionExplainer(SimpleNamespace(load=model.eval), tiny_graph)
    rows = touched(tiny_graph)
    found = one.vectors_if(rows, change(one, [GONE], scale=0.5))
    whole = [passages + 0.5 * context for _, passages, context in gated_contexts(model, smaller)]
    expected = smaller.similarity.prepare(torch.cat(whole))[rows].detach().numpy()
    assert np.abs(found - expected).max() < 1e-5
    with pytest.raises(NoWhatIf, match="edge features"):
        one.vectors_if(rows, change(one, vectors=np.ones((1, 32)), neighbors=np.zeros((1, 5), dtype=np.int64)))


@pytest.fixture(scope="module")
def opened(tiny_run):
    return Retriever.open(tiny_run)


@pytest.fixture(scope="module")
def question(tiny_dataset):
    return next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text


def test_the_ranking_is_that_of_the_changed_vectors(opened, question):
    found = opened.what_if(question, Change("p07", ["train-07"]), 40)
    as_it_is = {one.hit.id: one.hit.score for one in found.before}
    after = {one.hit.id: one.hit.score for one in found.after}
    changed = {one.id for one in found.touched}
    assert found.touched[0].id == "p07"
    assert changed == {"p07"} | {f"p{row:02d}" for row in opened.graph.neighbors[7]}
    assert {id_ for id_ in after if after[id_] != pytest.approx(as_it_is[id_], abs=1e-6)} <= changed
    assert after["p07"] != pytest.approx(as_it_is["p07"], abs=1e-6)
    assert list(after.values()) == sorted(after.values(), reverse=True)
    ranks = {one.hit.id: (one.elsewhere, one.hit.rank) for one in found.after}
    assert all(ranks[one.id] == (one.before, one.after) for one in found.touched)


def test_without_a_change_nothing_moves(opened, question):
    found = opened.what_if(question, Change("p07"), 10)
    assert [one.hit.id for one in found.before] == [one.hit.id for one in found.after]
    assert found.touched[0].cosine == pytest.approx(1)


def test_without_a_change_nothing_moves_in_a_compressed_index_either(opened, question, tmp_path):
    source = open_embeddings(opened.index.made_from("embeddings"))
    index = build_index(source, tmp_path / "index", IndexSettings(factory="SQ4"))
    found = Retriever.open(index.path).what_if(question, Change("p07", ["train-07"], scale=0.0), 40)
    unmoved = Retriever.open(index.path).what_if(question, Change("p07"), 40)
    assert [one.hit for one in unmoved.before] == [one.hit for one in unmoved.after]
    as_it_is, after = ({one.hit.id: one.hit.score for one in hits} for hits in (found.before, found.after))
    exact = opened.what_if(question, Change("p07", ["train-07"], scale=0.0), 40)
    moved = {one.hit.id: one.hit.score for one in exact.after}["p07"]
    moved -= {one.hit.id: one.hit.score for one in exact.before}["p07"]
    assert after["p07"] - as_it_is["p07"] == pytest.approx(moved, abs=1e-5)


def test_lambda_0_gives_the_passage_the_dual_encoder_s_score(opened, question):
    dual = {hit.id: hit.score for hit in opened.search(question, 40, "dual-encoder")}
    found = {one.hit.id: one.hit.score for one in opened.what_if(question, Change("p07", scale=0.0), 40).after}
    assert found["p07"] == pytest.approx(dual["p07"], abs=1e-3)  # vectors are stored in float16


def test_what_cannot_be_changed_is_a_sentence(opened, question, tiny_run, monkeypatch):
    with pytest.raises(InputError, match="nothing"):
        opened.what_if(question, Change("nothing"))
    monkeypatch.setattr(what_if, "MOST_TOUCHED", 3)
    with pytest.raises(NoWhatIf, match="more than 3 passages"):
        opened.what_if(question, Change("p07", ["train-07"]))


def test_a_ranking_that_is_cut_keeps_only_what_is_surely_in_it():
    ranking = (np.array([4, 2, 9]), np.array([0.9, 0.5, 0.4], dtype=np.float32))
    rows, scores = np.array([2, 7]), np.array([0.3, 0.7], dtype=np.float32)
    assert what_if._replaced(ranking, rows, scores, 100)[0].tolist() == [4, 7, 9]
    assert what_if._replaced(ranking, rows, scores, 3)[0].tolist() == [4, 7, 9, 2]
