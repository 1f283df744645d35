"""Document expansion, by hand-worked examples."""

import numpy as np
import pytest
import torch

from gnnretrieval.baselines import EXPANSION
from gnnretrieval.baselines.expansion import MOST, Expanded, choose_weight, expanding_encoder
from gnnretrieval.baselines.rankings import rank_baselines
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.index.lexical import label_questions
from gnnretrieval.nn.label_messages import MessageGraph
from gnnretrieval.training.gnn.ladder import message_graph


class Recorder:
    """An encoder that keeps the texts it is given."""

    dimension = 2

    def __init__(self):
        self.texts = []

    def encode(self, texts, side):
        assert side == "passage"
        self.texts += texts
        return np.tile(np.float32([0.0, 1.0]), (len(texts), 1))


def plane() -> MessageGraph:
    """Two passages in the plane, of which the second has a training question."""
    passages, queries = torch.tensor([[0.96, 0.28], [1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    labels = torch.tensor([[0, 1]])
    return MessageGraph(passages, queries, torch.tensor([[0]]), labels, torch.ones(1, dtype=torch.bool), True, 1.0)


def test_passages_are_encoded_after_their_visible_questions(tiny_graph):
    recorder = Recorder()
    visible = np.zeros(tiny_graph.num_queries, dtype=bool)
    visible[:10] = True
    expanded = Expanded.of(tiny_graph, recorder, visible)
    questions = label_questions(tiny_graph, visible)
    assert expanded.rows.tolist() == sorted(questions)
    with tiny_graph.texts() as texts:
        own = texts.texts_of_passages(sorted(questions))
    assert recorder.texts == [
        "\n".join([*questions[row], text]) for row, text in zip(sorted(questions), own, strict=True)
    ]
    assert len(Expanded.of(tiny_graph, Recorder(), np.zeros_like(visible)).vectors) == 0


def test_vectors_of_a_dot_product_are_as_long_as_the_graph_s_passages(tiny_graph, monkeypatch):
    """An encoder that gives the passages' own vectors changes nothing, at any weight."""
    dot = Similarity(normalize=False, scale=1.0)
    monkeypatch.setattr(type(tiny_graph), "similarity", dot)
    features = np.asarray(tiny_graph.passage_features, dtype=np.float32)
    rows = sorted(label_questions(tiny_graph))
    own = Recorder()
    own.dimension = features.shape[1]
    own.encode = lambda texts, side: features[rows]
    graph = message_graph(tiny_graph)
    mixed = Expanded.of(tiny_graph, own).mixed(graph, 0.7)
    torch.testing.assert_close(mixed.passages, graph.passages)


def test_vectors_are_mixed_for_passages_with_questions_alone():
    graph = plane()
    mixed = Expanded(torch.tensor([1]), torch.tensor([[0.0, 1.0]])).mixed(graph, 0.5)
    torch.testing.assert_close(mixed.passages, torch.tensor([[0.96, 0.28], [0.5**0.5, 0.5**0.5]]))
    assert graph.passages[1].tolist() == [1.0, 0.0]


def test_the_smallest_of_the_best_weights_is_chosen():
    expanded = Expanded(torch.tensor([1]), torch.tensor([[0.0, 1.0]]))
    asked = np.float32(
        [[0.6, 0.8]]
    )  # its dot product with passage 0 is 0.8; with passage 1, 0.78 at weight 0.2 and 0.87 at 0.3
    assert choose_weight(plane(), expanded, asked, [[1]], np.zeros(1, dtype=int)) == (0.3, 1.0)
    assert choose_weight(plane(), expanded, asked, [[0]], np.zeros(1, dtype=int)) == (0.0, 1.0)


def test_its_ranking_is_by_the_encoder_s_vectors_of_the_longer_texts(tiny_graph, tiny_dataset, tiny_features, tmp_path):
    given = (tiny_graph, Dataset.open(tiny_dataset), tiny_features, "test")
    made = rank_baselines(*given, tmp_path / "out", depth=20, only=(EXPANSION,))
    weight = made.meta["chosen"][EXPANSION]["setting"]["weight"]
    encoder = open_encoder(EncoderSettings.parse(tiny_features.meta["encoder"], tmp_path))
    passages = Expanded.of(tiny_graph, encoder).mixed(message_graph(tiny_graph), weight).passages
    run = made.runs()[EXPANSION]
    queries = list(run)[:3]
    rows = tiny_features.rows_of(queries)
    asked = tiny_features.similarity.prepare_array(np.asarray(tiny_features.queries[rows], dtype=np.float32))
    for query, scores in zip(queries, asked @ passages.numpy().T, strict=True):
        assert [one.score for one in run[query]] == pytest.approx(sorted(scores.tolist(), reverse=True)[:20], abs=1e-5)


def test_over_imported_vectors_it_is_left_out_or_refused_in_a_sentence(
    tiny_dataset, tiny_features, tmp_path, monkeypatch
):
    said = []
    monkeypatch.setattr("gnnretrieval.baselines.rankings.say", said.append)
    dataset = Dataset.open(tiny_dataset)
    for side in ("passages", "queries"):
        np.save(tmp_path / f"{side}.npy", getattr(tiny_features, side))
    files = (tmp_path / "passages.npy", tmp_path / "queries.npy")
    features = import_vectors(dataset, *files, VectorSettings(name="given", similarity="cosine"), tmp_path / "features")
    graph = build_graph(dataset, features, GraphSettings(k=5), tmp_path / "graph")
    made = rank_baselines(graph, dataset, features, "test", tmp_path / "all", depth=5)
    assert EXPANSION not in made.names
    assert said[0].startswith(f"without {EXPANSION}: ")
    assert "--only" not in said[0]  # that would not help
    with pytest.raises(GnnRetrievalError, match="vectors"):
        rank_baselines(graph, dataset, features, "test", tmp_path / "one", only=(EXPANSION,))


def test_many_passages_are_encoded_again_only_if_asked(tiny_graph, tiny_features, monkeypatch):
    monkeypatch.setattr("gnnretrieval.baselines.expansion.MOST", 3)
    with pytest.raises(GnnRetrievalError, match=rf"only = {EXPANSION} \(--only\) does this"):
        expanding_encoder(tiny_graph, tiny_features)
    assert expanding_encoder(tiny_graph, tiny_features, wanted=True).dimension == tiny_graph.dimension
    assert MOST > 3
