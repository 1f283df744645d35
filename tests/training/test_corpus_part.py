"""layer = linear on a part of the corpus, and embeddings in blocks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.index import message_explainer
from gnnretrieval.index.message_explainer import MessagesExplainer
from gnnretrieval.nn import label_messages
from gnnretrieval.nn.label_messages import Heads, Messages, message_vectors
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.gnn import corpus_part, ladder
from gnnretrieval.training.gnn import messages as training
from gnnretrieval.training.gnn.corpus_part import CorpusPart, message_blocks, most_nodes
from gnnretrieval.training.gnn.dry_run import rehearse
from gnnretrieval.training.gnn.held_out import HeldOut
from gnnretrieval.training.gnn.ladder import message_graph
from gnnretrieval.training.gnn.messages import TrainedMessages

PASSAGES, QUERIES, WIDTH = 300, 80, 16
ALL = Messages(steps=1, mean=0.3, prior=0.1, scaling=0.4, level=0.2, sides="apart")


def store_of(normalize=True, seed=0):
    """A graph with one label for each of its first 60 questions; question 3 is hidden by an update."""
    rng = np.random.default_rng(seed)
    visible = np.arange(QUERIES) != 3
    return SimpleNamespace(
        path="graph",
        num_passages=PASSAGES,
        num_queries=QUERIES,
        dimension=WIDTH,
        passage_features=(3 * rng.standard_normal((PASSAGES, WIDTH))).astype(np.float16),
        query_features=rng.standard_normal((QUERIES, WIDTH)).astype(np.float16),
        neighbors=rng.integers(0, PASSAGES, (QUERIES, 4)),
        labels=np.stack([np.arange(60), rng.integers(0, 40, 60)], axis=1)[visible[:60]],
        similarity=Similarity(normalize=normalize, scale=20.0),
        visible=visible,
        among=lambda chosen: visible if chosen is None else visible & chosen,
    )


def dev_of(store, count=12, hidden=None, clicked=None):
    rng = np.random.default_rng(1)
    relevant = [[int(row)] for row in rng.choice(store.num_passages, count, replace=False)]
    vectors = rng.standard_normal((count, WIDTH)).astype(np.float16)
    texts = [""] * count
    return HeldOut("dev", texts, vectors, texts, relevant, hidden, np.zeros(count, dtype=np.int64), clicked)


def heads_of(seed=2):
    generator = torch.Generator().manual_seed(seed)
    return Heads(*(torch.eye(WIDTH) + 0.1 * torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(2)))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("memory", [1, 40 * 4 * WIDTH * 8, 2**30])
def test_blocks_have_the_vectors_of_the_whole(normalize, memory):
    store, heads = store_of(normalize), heads_of()
    expected = message_vectors(message_graph(store), heads, ALL).numpy()
    blocks = [*message_blocks(heads, ALL, store, memory)]
    assert np.concatenate([rows for rows, _ in blocks]).tolist() == list(range(PASSAGES))
    np.testing.assert_allclose(np.concatenate([vectors for _, vectors in blocks]), expected, rtol=1e-4, atol=1e-5)
    assert len(blocks) == {1: PASSAGES, 2**30: 1}.get(memory, 8)


def test_some_passages_have_their_vectors_in_blocks():
    store, heads, only = store_of(), heads_of(), np.array([0, 7, 8, 39, 120, 299])
    expected = message_vectors(message_graph(store), heads, ALL).numpy()[only]
    blocks = [*message_blocks(heads, ALL, store, 2 * 4 * WIDTH * 8, only)]
    assert np.concatenate([rows for rows, _ in blocks]).tolist() == only.tolist()
    np.testing.assert_allclose(np.concatenate([vectors for _, vectors in blocks]), expected, rtol=1e-4, atol=1e-5)


def test_nearness_in_blocks_is_among_the_questions_of_the_whole(monkeypatch):
    monkeypatch.setattr(label_messages, "SAMPLE", 30)
    store, messages = store_of(), Messages(scaling=1.0, level=0.2)
    expected = message_vectors(message_graph(store), None, messages).numpy()
    made = np.concatenate([vectors for _, vectors in message_blocks(None, messages, store, 1)])
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_a_part_has_what_dev_needs_and_rows_of_its_own(monkeypatch):
    monkeypatch.setattr(corpus_part, "HARD", 2)
    store, taught = store_of(), torch.arange(QUERIES) % 2 == 0
    hidden = np.arange(QUERIES) == 10
    shown = [[*rows, 5] for rows in dev_of(store).relevant]
    clicked = ClickedQuestions(dev_of(store).relevant, [*shown[:-1], None], np.ones(12))
    held_out = dev_of(store, hidden=hidden, clicked=clicked)
    part = CorpusPart.of(store, held_out, taught, 120, seed=0)
    whole = message_graph(store)
    assert len(part.graph.passages) == 120

    def passage(row):  # of the whole graph
        (same,) = torch.nonzero((whole.passages == part.graph.passages[row]).all(1)).ravel().tolist()
        return same

    def query(row):
        (same,) = torch.nonzero((whole.queries == part.graph.queries[row]).all(1)).ravel().tolist()
        return same

    assert [[passage(row) for row in rows] for rows in part.held_out.relevant] == held_out.relevant
    assert [rows and sorted(passage(row) for row in rows) for rows in part.held_out.clicked.shown] == [
        rows and sorted(rows) for rows in clicked.shown
    ]
    best = np.argsort(-held_out.queries.astype(np.float32) @ whole.passages.numpy().T, axis=1)[:, :2]
    assert {*best.ravel().tolist()} <= {passage(row) for row in range(120)}
    labels = [(query(asked), passage(row)) for asked, row in part.graph.labels.tolist()]
    assert sorted(labels) == sorted(map(tuple, whole.labels.tolist()))  # 40 passages at most: all fit into a half
    queries = [query(row) for row in range(len(part.graph.queries))]
    assert queries == [row for row in range(QUERIES) if row != 3]
    assert part.taught.tolist() == [row % 2 == 0 for row in queries]
    assert part.held_out.hidden.tolist() == [row == 10 for row in queries]
    again = CorpusPart.of(store, held_out, taught, 120, seed=0)
    assert torch.equal(part.graph.passages, again.graph.passages)
    other = CorpusPart.of(store, held_out, taught, 120, seed=1)
    assert not torch.equal(part.graph.passages, other.graph.passages)


def test_labels_take_at_most_half_of_a_part_and_as_many_questions_as_it_has_passages():
    store = store_of()
    store.labels = np.stack([np.arange(QUERIES), np.arange(QUERIES)], axis=1)[store.visible]
    part = CorpusPart.of(store, dev_of(store, 2), torch.ones(QUERIES, dtype=torch.bool), 40, seed=0)
    assert len(part.graph.labels) == 20
    store.labels[:, 1] = 0
    part = CorpusPart.of(store, dev_of(store, 2), torch.ones(QUERIES, dtype=torch.bool), 40, seed=0)
    assert len(part.graph.labels) == 40
    assert len(part.graph.passages) + len(part.graph.queries) <= most_nodes(40)


@pytest.fixture
def small(monkeypatch):
    """Few steps of training, and few passages for dev: the dataset has 40."""
    monkeypatch.setattr(corpus_part, "HARD", 1)
    monkeypatch.setattr(ladder, "STEPS", (30, 90))
    monkeypatch.setattr(ladder, "ENOUGH", 1)


def test_a_model_of_a_part_embeds_the_whole_corpus_and_says_so(
    small, tiny_graph, tiny_dataset, tiny_features, tmp_path, said
):
    dataset, settings = Dataset.open(tiny_dataset), TrainSettings.parse({"evidence": 1.0, "passages": 30})
    assert settings.layer == "linear"
    model = train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / "model")
    assert model.meta["dev"]["passages"] < tiny_graph.num_passages
    assert model.meta["messages"]["rounds"] == 0
    assert (
        f"training on about 30 of {tiny_graph.num_passages} passages, without rejection and updates, which need all"
        in said
    )
    assert "| passages | 30 |" in (tmp_path / "model" / "README.md").read_text()
    assert "rejection" not in (tmp_path / "model" / "log.jsonl").read_text()
    made = embed_passages(model, tiny_graph, tmp_path / "embeddings")
    assert len(made.passages) == tiny_graph.num_passages


def test_where_memory_holds_only_a_part_training_takes_one_and_embedding_reads_blocks(
    small, tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, said
):
    dataset, settings = Dataset.open(tiny_dataset), TrainSettings(evidence=1.0)
    monkeypatch.setattr(training, "memory_limit", lambda: 0)
    monkeypatch.setattr(training, "PASSAGES", 30)
    model = train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / "model")
    assert model.meta["dev"]["passages"] < tiny_graph.num_passages
    assert any(line.startswith("memory does not hold all vectors: training on about 30 of 40") for line in said)
    assert rehearse(tiny_graph, dataset, tiny_features, settings)["memory"]["estimate"] > 0
    in_blocks = np.array(embed_passages(model, tiny_graph, tmp_path / "blocks", memory=1).passages)
    monkeypatch.undo()
    whole = np.array(embed_passages(model, tiny_graph, tmp_path / "whole").passages)
    np.testing.assert_allclose(in_blocks.astype(np.float32), whole.astype(np.float32), atol=2e-3)


def test_a_graph_that_does_not_fit_is_explained_passage_by_passage(tiny_graph, tmp_path, monkeypatch):
    messages = Messages(steps=5, mean=0.3, scaling=0.4, level=0.2, sides="apart")
    heads = Heads(*(torch.eye(tiny_graph.dimension) for _ in range(2)))
    trained = TrainedMessages(heads, messages)
    whole = MessagesExplainer(tiny_graph, trained)
    monkeypatch.setattr(message_explainer, "fits_memory", lambda store: False)
    monkeypatch.setattr(message_explainer, "message_graph", None)
    part = MessagesExplainer(tiny_graph, trained)
    for row in range(tiny_graph.num_passages):
        expected, given = whole.explain(row), part.explain(row)
        assert given._replace(shift=0.0) == expected._replace(shift=0.0)
        assert given.shift == pytest.approx(expected.shift, abs=1e-5)
    assert whole.no_what_if is None
    assert part.no_what_if == "The graph's vectors do not fit into memory, so nothing can be tried."


def test_a_part_that_does_not_fit_is_refused_with_the_remedy(
    tiny_graph, tiny_dataset, tiny_features, monkeypatch, tmp_path
):
    monkeypatch.setattr("gnnretrieval.platform.memory.memory_limit", lambda: 1000)
    settings = TrainSettings.parse({"passages": 30})
    with pytest.raises(GnnRetrievalError, match=r"layer = linear on 30 passages of .* Give fewer \(--passages\)"):
        train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, settings, tmp_path / "model")


@pytest.mark.parametrize("others", [{"layer": "gat"}, {"layer": "linear", "mode": "joint"}])
def test_a_part_is_only_for_linear_over_a_frozen_encoder(others):
    with pytest.raises(InputError, match="passages: only for layer = linear with mode = frozen"):
        TrainSettings.parse({"passages": 1000, **others})


def test_models_from_before_there_were_parts_stay_valid(small, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    model = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, TrainSettings(), tmp_path / "model")
    assert "passages" not in model.config
