from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnretrieval.encoders.exact_search import exact_top_k, ranks_of
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.index.attention_explainer import AttentionExplainer
from gnnretrieval.index.explanations import Explanation
from gnnretrieval.index.neighborhood import SECOND, describe
from gnnretrieval.nn.gnn_encoder import GNNEncoder
from gnnretrieval.training.gnn.graph_tensors import GraphTensors, edge_moments


@pytest.fixture
def model(tiny_graph):
    """A GNN-encoder whose every weight is random, so that no attention is uniform."""
    torch.manual_seed(0)
    model = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mean, deviation = edge_moments(tiny_graph)
    model.edge_mean.copy_(torch.from_numpy(mean))
    model.edge_deviation.copy_(torch.from_numpy(deviation))
    return model.eval()


@pytest.fixture
def explainer(tiny_graph, model):
    return AttentionExplainer(SimpleNamespace(load=lambda: model), tiny_graph)


def attention_by_hand(layer, target, sources, edges, loop):
    """Eq. 3 and 4 for one target, one head, written out; ``edges`` standardised."""
    score = lambda source, edge: torch.nn.functional.leaky_relu(  # noqa: E731
        layer.lin_dst(target) @ layer.att_dst.flatten()
        + layer.lin_src(source) @ layer.att_src.flatten()
        + layer.lin_edge(edge) @ layer.att_edge.flatten(),
        0.2,
    )
    logits = [score(source, edge) for source, edge in zip(sources, edges, strict=True)]
    return torch.stack([*logits, score(target, loop)]).softmax(0)


def test_the_attention_of_a_query_is_layer_one_s_by_hand(tiny_graph, model, explainer):
    row = 17
    features = torch.from_numpy(np.asarray(tiny_graph.passage_features, dtype=np.float32))
    edges = torch.from_numpy(tiny_graph.gather_edge_features(row * tiny_graph.stride + np.arange(tiny_graph.k)))
    expected = attention_by_hand(
        model.passages_to_queries,
        torch.from_numpy(tiny_graph.query_features[row].astype(np.float32)),
        features[tiny_graph.neighbors[row].astype(np.int64)],
        (edges - model.edge_mean) / model.edge_deviation,
        model.query_loop,
    )
    attention = explainer.attention_of_query(row)
    assert list(attention.weights) == [f"p{passage:02d}" for passage in tiny_graph.neighbors[row]]
    assert [*attention.weights.values(), attention.own] == pytest.approx(expected.tolist(), abs=1e-5)
    assert attention.mean_gate is None


def test_the_attention_of_a_passage_is_layer_two_s_by_hand(tiny_graph, model, explainer):
    row = int(tiny_graph.degrees().argmax())
    edges, _ = tiny_graph.found_by(np.array([row]))
    queries = edges // tiny_graph.stride
    subgraph = tiny_graph.subgraph(np.array([row]))
    batch = GraphTensors(tiny_graph).tensors(subgraph)
    interactive = model.interactive_queries(batch.queries, batch.sources, batch.to_queries, batch.query_edge_features)
    standard = (torch.from_numpy(tiny_graph.gather_edge_features(edges)) - model.edge_mean) / model.edge_deviation
    expected = attention_by_hand(
        model.queries_to_passages, batch.passages[0], interactive, standard, model.passage_loop
    ).tolist()
    attention = explainer.attention_of_passage(row)
    assert [*attention.weights.values(), attention.own] == pytest.approx(expected, abs=1e-5)
    assert list(attention.weights) == [f"train-{query:02d}" for query in queries]
    assert len(set(expected)) == len(expected)
    explanation = explainer.explain(row, most=1000)
    assert {n.id: n.attention for n in explanation.neighbors} == pytest.approx(attention.weights)
    assert explanation.mean_gate == attention.mean_gate
    assert 0 < attention.mean_gate < 1
    labelled = {query for query, passage in tiny_graph.labels.tolist() if passage == row}
    assert {n.id for n in explanation.neighbors if n.labelled} == {f"train-{q:02d}" for q in labelled & set(queries)}


def test_a_passage_that_no_question_found_hears_only_itself(tiny_graph, explainer):
    (row, *_) = np.flatnonzero(tiny_graph.degrees() == 0)
    attention = explainer.attention_of_passage(int(row))
    assert (attention.weights, attention.own) == ({}, pytest.approx(1))


def test_a_described_node_has_its_attention_and_its_neighbours_theirs(tiny_graph, explainer):
    row = int(tiny_graph.degrees().argmax())
    described = describe(tiny_graph, f"p{row:02d}", most=4, hops=2, explainer=explainer)
    attention = explainer.attention_of_passage(row)
    assert "row" not in described["node"]
    assert described["node"]["edges"] == tiny_graph.degrees()[row]
    assert described["node"]["own_attention"] == attention.own
    weights = [edge["attention"] for edge in described["neighbors"]]
    assert weights == sorted(attention.weights.values(), reverse=True)[:4]
    for edge in described["neighbors"]:
        inner = explainer.attention_of_query(int(edge["id"][-2:]))
        assert edge["own_attention"] == inner.own
        assert edge["edges"] == 5
        assert len(edge["neighbors"]) == SECOND
        assert [other["attention"] for other in edge["neighbors"]] == sorted(inner.weights.values(), reverse=True)[
            :SECOND
        ]


def test_without_a_model_there_is_no_attention(tiny_graph):
    described = describe(tiny_graph, "train-07", is_query=True)
    assert described["node"] == {
        "kind": "query",
        "id": "train-07",
        "text": described["node"]["text"],
        "split": "train",
        "edges": 5,
    }
    assert set(described["neighbors"][0]) == {"id", "text", "score", "rank", "labelled", "retrieved"}


@pytest.mark.parametrize("normalize", [True, False])
def test_ranks_of_several_passages_are_those_of_a_full_sort(normalize):
    rng = np.random.default_rng(0)
    vectors, query = rng.standard_normal((50, 8)).astype(np.float16), rng.standard_normal(8).astype(np.float32)
    similarity = Similarity(normalize=normalize, scale=20.0)
    order = np.argsort(-(similarity.prepare_array(vectors) @ similarity.prepare_array(query)))
    place = {int(row): rank for rank, row in enumerate(order, 1)}
    asked = [3, 49, 0, 21, 3]
    assert ranks_of(asked, query, vectors, similarity) == [place[row] for row in asked]
    assert ranks_of([], query, vectors, similarity) == []


def test_passages_of_equal_score_rank_one_after_the_other():
    vectors, query = np.ones((5, 4), dtype=np.float16), np.ones(4, dtype=np.float32)
    similarity = Similarity(normalize=True, scale=1.0)
    assert ranks_of([0, 4, 2], query, vectors, similarity) == [1, 5, 3]
    assert ranks_of([0, 4, 2], query, vectors, similarity, np.array([1, 4])) == [1, 4, 2]
    assert ranks_of([0, 4, 2], query, vectors, similarity, ties=np.negative) == [5, 1, 3]


def test_ranks_are_those_of_an_exact_search_where_vectors_are_repeated():
    rng = np.random.default_rng(1)
    vectors = np.repeat(rng.standard_normal((40, 24)), 3, axis=0)[rng.permutation(120)].astype(np.float16)
    similarity = Similarity(normalize=True, scale=1.0)
    for query in rng.standard_normal((5, 24)).astype(np.float32):
        order, _ = exact_top_k(query[None], vectors, 120, similarity)
        place = {row: rank for rank, row in enumerate(order[0].tolist(), 1)}
        assert ranks_of(range(120), query, vectors, similarity) == [place[row] for row in range(120)]


@pytest.mark.parametrize(
    ("gate", "shift", "said"),
    [(0.4, 0.8, "its self-loop only"), (None, 0.8, "heads did"), (None, 1.0, "the dual-encoder's direction")],
)
def test_an_embedding_without_neighbours_says_what_it_is(gate, shift, said):
    assert said in Explanation([], 1.0, gate, gate, shift).without_neighbors
