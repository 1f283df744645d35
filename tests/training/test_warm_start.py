"""A warm start: the head goes on from where it was, by few steps, and the messages keep their settings."""

import shutil

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.graph import GraphSettings, build_graph
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, message_vectors
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn import warm_start
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import held_out_queries
from gnnretrieval.training.gnn.ladder import message_graph, reciprocal_ranks
from gnnretrieval.training.gnn.messages import TrainedMessages
from gnnretrieval.training.gnn.warm_start import continue_messages, grew_enough, keep_trained


@pytest.fixture(scope="module")
def graph():
    """Questions that are turned against the passages that they want: what a head can learn."""
    rng = np.random.default_rng(0)
    passages = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(60, 12))).float(), dim=1)
    turn = torch.from_numpy(np.linalg.qr(rng.normal(size=(12, 12)))[0]).float()
    labels = torch.arange(120)[:, None].repeat(1, 2) % torch.tensor([120, 60])
    noise = 0.1 * torch.from_numpy(rng.normal(size=(120, 12))).float()
    queries = torch.nn.functional.normalize(passages[labels[:, 1]] @ (turn + torch.eye(12)) + noise, dim=1)
    neighbors = (queries @ passages.T).topk(3).indices
    return MessageGraph(passages, queries, neighbors, labels, torch.ones(120, dtype=torch.bool), True, 20.0)


def ranked(graph, trained):
    vectors = message_vectors(graph, trained.heads, trained.messages)
    relevant = [[row] for row in graph.labels[:, 1].tolist()]
    return float(reciprocal_ranks(vectors, graph.queries, relevant).mean())


def test_it_goes_on_from_the_head_by_few_steps(graph, monkeypatch):
    steps = []

    def counted(graph, count, **how):
        steps.append(count)
        return train_heads(graph, count, **how)

    monkeypatch.setattr(warm_start, "train_heads", counted)
    taught = torch.arange(120) < 108
    start = TrainedMessages(train_heads(graph, 60, taught=taught), Messages(steps=60, mean=0.1))
    fresh = ~taught.numpy()
    trained = continue_messages(graph, start, fresh)
    assert steps == [24]  # 12 new labels and 36 of the others, of 120
    assert trained.messages == start.messages
    head = start.heads.queries
    assert 0 < float((trained.heads.queries - head).norm()) < float((head - torch.eye(12)).norm())
    identity = TrainedMessages(None, Messages())
    assert ranked(graph, trained) > ranked(graph, identity) + 0.05
    assert torch.equal(continue_messages(graph, start, fresh).heads.queries, trained.heads.queries)


def test_without_a_head_or_new_labels_nothing_is_trained(graph):
    identity = TrainedMessages(None, Messages(mean=0.2))
    assert continue_messages(graph, identity, np.ones(120, dtype=bool)) is identity
    start = TrainedMessages(Heads.shared(torch.eye(12)), Messages(steps=10))
    assert continue_messages(graph, start, np.zeros(120, dtype=bool)) is start


def test_a_head_from_the_identity_is_a_head_from_nothing(graph):
    identity = Heads.shared(torch.eye(12))
    for sides in ("both", "apart"):
        expected, found = train_heads(graph, 5, sides=sides), train_heads(graph, 5, sides=sides, start=identity)
        assert all(map(torch.equal, found, expected))


def test_separate_heads_go_on_from_both(graph):
    taught = torch.arange(120) < 108
    messages = Messages(steps=60, sides="apart")
    start = TrainedMessages(train_heads(graph, 60, sides="apart", taught=taught), messages)
    trained = continue_messages(graph, start, ~taught.numpy())
    for now, before in zip(trained.heads, start.heads, strict=True):
        assert 0 < float((now - before).norm()) < float((before - torch.eye(12)).norm())
    assert not torch.equal(trained.heads.queries, trained.heads.passages)


def test_training_begins_again_when_the_labels_have_grown_enough():
    head = TrainedMessages(Heads.shared(torch.eye(2)), Messages(steps=1))
    identity = TrainedMessages(None, Messages())
    assert [grew_enough(labels, 100, head, 1.0) for labels in (199, 200)] == [False, True]
    assert [grew_enough(labels, 100, identity, 1.0) for labels in (124, 125)] == [False, True]
    assert grew_enough(1, 0, identity, 1.0)


@pytest.fixture(scope="module")
def no_dev(tiny_dataset, tiny_settings, tmp_path_factory):
    place = tmp_path_factory.mktemp("no-dev")
    shutil.copytree(tiny_dataset, place / "data")
    (place / "data" / "qrels" / "dev.tsv").unlink()
    dataset = Dataset.open(place / "data")
    features = encode_dataset(dataset, tiny_settings, place / "features")
    return build_graph(dataset, features, GraphSettings(k=5), place / "graph"), dataset, features


@pytest.mark.parametrize("has_head", [False, True])
def test_without_a_dev_split_no_question_is_measured_over_a_graph_that_answers_it(has_head, no_dev, tmp_path):
    store, dataset, features = no_dev
    eye = Heads.shared(torch.eye(store.dimension)) if has_head else None
    trained = TrainedMessages(eye, Messages(steps=int(has_head), mean=1.0))
    settings, how = TrainSettings.parse({"layer": "linear"}), {"replay": 3.0}
    dev = keep_trained(lambda: trained, store, dataset, features, settings, tmp_path / "model", how=how).meta["dev"]
    held_out = held_out_queries(store, dataset, features, 0)
    measured = []
    for graph in (message_graph(store, held_out.hidden), message_graph(store)):
        vectors, queries = message_vectors(graph, trained.heads, trained.messages), torch.from_numpy(held_out.queries)
        measured.append(reciprocal_ranks(vectors, graph.prepare(queries.float()), held_out.relevant).mean())
    assert dev["chosen"]["RR@10"] == pytest.approx(measured[0])
    assert measured[0] < measured[1] - 0.1
    assert ("which the head learned from" in dev["split"]) == has_head
