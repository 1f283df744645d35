from math import exp

import numpy as np
import pytest
import torch

from gnnretrieval.nn import GNNEncoder, GNNEncoderSettings, GraphBatch, Neighbors
from gnnretrieval.training.gnn.graph_tensors import GraphTensors


def matrix_by_vector(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def leaky(x):
    return x if x > 0 else 0.2 * x


def sigmoid(x):
    return 1 / (1 + exp(-x))


def softmax(logits):
    total = sum(exp(logit) for logit in logits)
    return [exp(logit) / total for logit in logits]


def gat(layer, target, heard, edges, loop_edge):
    """Eq. 3-5 for one target, in plain arithmetic: its neighbours in order, then itself."""
    at_target = dot(layer["a_t"], matrix_by_vector(layer["W_t"], target))
    logits = [
        leaky(at_target + dot(layer["a_s"], matrix_by_vector(layer["W_s"], node)) + dot(layer["a_e"], edge_part))
        for node, edge_part in zip(
            [*heard, target],
            [matrix_by_vector(layer["W_e"], edge) for edge in [*edges, loop_edge]],
            strict=True,
        )
    ]
    projected = [matrix_by_vector(layer["W_s"], node) for node in [*heard, target]]
    return [sum(a * node[i] for a, node in zip(softmax(logits), projected, strict=True)) for i in range(2)]


LAYER_1 = {
    "W_s": [[1.0, 0.5], [-0.5, 1.0]],
    "W_t": [[0.2, -0.3], [0.4, 0.1]],
    "W_e": [[0.3], [-0.7]],
    "a_s": [0.6, -0.4],
    "a_t": [0.5, 0.9],
    "a_e": [1.1, 0.2],
}
LAYER_2 = {
    "W_s": [[0.7, -0.2], [0.3, 0.9]],
    "W_t": [[-0.6, 0.8], [0.1, -0.5]],
    "W_e": [[-0.4], [0.9]],
    "a_s": [-0.8, 0.3],
    "a_t": [0.2, -0.7],
    "a_e": [0.5, 0.6],
}
W_PQ, B_PQ = [[0.3, -0.1, 0.9, 0.2], [0.5, 0.4, -0.2, 1.1]], [0.05, -0.15]
W_QP, B_QP = [[0.6, -0.9, 0.4, 0.1], [-0.3, 0.8, 0.2, -0.5]], [-0.2, 0.3]
QUERY_LOOP, PASSAGE_LOOP = [0.35], [-0.45]
MEAN, DEVIATION, SCALE = 0.25, 2.0, 0.75
# Two passages that one query found: three nodes.
P_0, P_1, Q = [1.0, 2.0], [-1.0, 0.5], [0.5, -1.5]
EDGE_0, EDGE_1 = 1.25, -0.75


def worked_encoder() -> GNNEncoder:
    model = GNNEncoder(2, 1)
    values = {
        "query_update.weight": W_PQ,
        "query_update.bias": B_PQ,
        "filter_gate.lin.weight": W_QP,
        "filter_gate.lin.bias": B_QP,
        "query_loop": QUERY_LOOP,
        "passage_loop": PASSAGE_LOOP,
        "context_scale": SCALE,
        "edge_mean": [MEAN],
        "edge_deviation": [DEVIATION],
    }
    for prefix, layer in (("passages_to_queries", LAYER_1), ("queries_to_passages", LAYER_2)):
        values |= {
            f"{prefix}.lin_src.weight": layer["W_s"],
            f"{prefix}.lin_dst.weight": layer["W_t"],
            f"{prefix}.lin_edge.weight": layer["W_e"],
            f"{prefix}.att_src": [[layer["a_s"]]],
            f"{prefix}.att_dst": [[layer["a_t"]]],
            f"{prefix}.att_edge": [[layer["a_e"]]],
        }
    model.load_state_dict({name: torch.tensor(value) for name, value in values.items()})
    return model


def batch_of(passages, queries, sources, to_queries, to_passages, query_edges, passage_edges) -> GraphBatch:
    def tensor(rows):
        return torch.tensor(rows, dtype=torch.float32)

    return GraphBatch(
        tensor(passages),
        tensor(queries).reshape(-1, len(passages[0])),
        tensor(sources).reshape(-1, len(passages[0])),
        Neighbors(*map(torch.tensor, to_queries)),
        Neighbors(*map(torch.tensor, to_passages)),
        tensor(query_edges),
        tensor(passage_edges),
    )


def test_the_worked_example_of_equations_3_to_10():
    edges = [[(EDGE_0 - MEAN) / DEVIATION], [(EDGE_1 - MEAN) / DEVIATION]]
    query_context = gat(LAYER_1, Q, [P_0, P_1], edges, QUERY_LOOP)  # eq. 6
    interactive = [  # eq. 7
        value + bias for value, bias in zip(matrix_by_vector(W_PQ, [*query_context, *Q]), B_PQ, strict=True)
    ]
    expected = []
    for passage, edge in ((P_0, edges[0]), (P_1, edges[1])):
        context = gat(LAYER_2, passage, [interactive], [edge], PASSAGE_LOOP)  # eq. 8
        gate = [  # eq. 9
            sigmoid(value + bias)
            for value, bias in zip(matrix_by_vector(W_QP, [*context, *passage]), B_QP, strict=True)
        ]
        expected.append([h + SCALE * f * c for h, f, c in zip(passage, gate, context, strict=True)])  # eq. 10
    batch = batch_of(
        [P_0, P_1], [Q], [P_0, P_1], ([0, 1], [0, 2]), ([0, 0], [0, 1, 2]), [[EDGE_0], [EDGE_1]], [[EDGE_0], [EDGE_1]]
    )
    torch.testing.assert_close(worked_encoder()(batch), torch.tensor(expected))


def test_the_worked_example_of_a_passage_that_no_query_found():
    context = gat(LAYER_2, P_0, [], [], PASSAGE_LOOP)
    gate = [sigmoid(value + bias) for value, bias in zip(matrix_by_vector(W_QP, [*context, *P_0]), B_QP, strict=True)]
    expected = [h + SCALE * f * c for h, f, c in zip(P_0, gate, context, strict=True)]
    empty = torch.empty(0, dtype=torch.int64)
    batch = GraphBatch(
        torch.tensor([P_0]),
        torch.empty(0, 2),
        torch.empty(0, 2),
        Neighbors(empty, torch.tensor([0])),
        Neighbors(empty, torch.tensor([0, 0])),
        torch.empty(0, 1),
        torch.empty(0, 1),
    )
    torch.testing.assert_close(worked_encoder()(batch), torch.tensor([expected]))


def random_batch(model: GNNEncoder, seed: int = 0) -> GraphBatch:
    """Four passages, three queries of two passages each; no query found passage 3."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    features = random(6, model.edge_dim) * 3 + 1
    by_passage = torch.tensor([0, 2, 1, 4, 3, 5])  # edges sorted by passage
    return GraphBatch(
        random(4, model.dimension),
        random(3, model.dimension),
        random(3, model.dimension),
        Neighbors(torch.tensor([0, 1, 0, 2, 1, 2]), torch.tensor([0, 2, 4, 6])),
        Neighbors(by_passage // 2, torch.tensor([0, 2, 4, 6, 6])),
        features if model.edge_dim else None,
        features[by_passage] if model.edge_dim else None,
    )


def randomised(model: GNNEncoder, seed: int = 0) -> GNNEncoder:
    """Every parameter moved away from the identity start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("edge_dim", [0, 2])
@pytest.mark.parametrize("heads", [1, 2])
def test_at_the_start_a_passage_gains_its_gates_share_of_the_mean_of_its_queries_and_itself(edge_dim, heads):
    model = GNNEncoder(4, edge_dim, GNNEncoderSettings(heads=heads, gate_start=0.2)).eval()
    batch = random_batch(model)
    torch.testing.assert_close(
        model.interactive_queries(batch.queries, batch.sources, batch.to_queries, batch.query_edge_features),
        batch.queries,
    )
    found_by = [[0, 1], [0, 2], [1, 2], []]
    means = torch.stack(
        [torch.cat([batch.queries[rows], batch.passages[[row]]]).mean(0) for row, rows in enumerate(found_by)]
    )
    torch.testing.assert_close(model(batch), batch.passages + 0.2 * means)


def test_with_context_scale_zero_the_output_is_the_dual_encoders_to_the_bit():
    model = randomised(GNNEncoder(4, 2))
    model.context_scale.zero_()
    batch = random_batch(model)
    assert torch.equal(model(batch), batch.passages)


def test_the_context_scale_is_linear():
    model = randomised(GNNEncoder(4, 2))
    batch = random_batch(model)
    moved = {}
    for scale in (0.25, 0.5, 1.0):
        model.context_scale.fill_(scale)
        moved[scale] = model(batch) - batch.passages
    torch.testing.assert_close(moved[0.5], moved[1.0] / 2)
    torch.testing.assert_close(moved[0.25], moved[1.0] / 4)
    assert moved[1.0].abs().min() > 0


def test_edge_features_are_standardised_by_the_moments_of_the_graph():
    model = randomised(GNNEncoder(4, 2))
    batch = random_batch(model)
    before = model(batch)
    factor, shift = torch.tensor([3.0, 0.1]), torch.tensor([-2.0, 40.0])
    model.edge_mean.copy_(shift)
    model.edge_deviation.copy_(factor)
    other = batch._replace(
        query_edge_features=batch.query_edge_features * factor + shift,
        passage_edge_features=batch.passage_edge_features * factor + shift,
    )
    torch.testing.assert_close(model(other), before)
    assert not torch.allclose(model(batch), before)


def test_edge_features_decide_who_is_heard():
    model = randomised(GNNEncoder(4, 2))
    batch = random_batch(model)
    assert not torch.allclose(model(batch), model(batch._replace(query_edge_features=batch.query_edge_features + 1)))
    assert not torch.allclose(
        model(batch), model(batch._replace(passage_edge_features=batch.passage_edge_features.flip(0)))
    )


def test_every_parameter_has_a_gradient_away_from_the_start():
    model = randomised(GNNEncoder(4, 2, GNNEncoderSettings(heads=2)))
    model(random_batch(model)).square().sum().backward()
    without = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.abs().any()]
    assert without == []


def test_a_subgraph_gives_its_passages_what_the_whole_graph_gives_them(tiny_graph):
    model = randomised(GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim))
    tensors = GraphTensors(tiny_graph)
    with torch.no_grad():
        whole = model(tensors.batch(np.arange(tiny_graph.num_passages)))
        for rows in ([0], [7, 3], [39, 5, 5, 12]):
            torch.testing.assert_close(model(tensors.batch(np.array(rows))), whole[rows], rtol=1e-4, atol=1e-5)


def test_a_subgraph_of_the_visible_queries_equals_the_whole_masked_graph(tiny_graph):
    model = randomised(GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim))
    tensors = GraphTensors(tiny_graph)
    visible = np.arange(tiny_graph.num_queries) % 3 > 0
    with torch.no_grad():
        whole = model(tensors.batch(np.arange(tiny_graph.num_passages), visible))
        rows = np.array([30, 2, 19])
        torch.testing.assert_close(model(tensors.batch(rows, visible)), whole[rows], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(whole, model(tensors.batch(np.arange(tiny_graph.num_passages))), atol=1e-3)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="3 heads"):
        GNNEncoder(4, 0, GNNEncoderSettings(heads=3))


@pytest.mark.parametrize("stored", [1, 2])
def test_stored_loop_features_stand_for_the_last_edge_features_and_are_standardised_with_them(stored):
    model = randomised(GNNEncoder(4, 2))
    model.edge_mean.copy_(torch.tensor([0.5, -1.0]))
    model.edge_deviation.copy_(torch.tensor([2.0, 0.5]))
    batch = random_batch(model)
    columns = slice(2 - stored, None)

    def unstandardised(learned, rows):
        return (learned.detach() * model.edge_deviation + model.edge_mean)[columns].expand(rows, -1)

    same = batch._replace(
        query_loop_features=unstandardised(model.query_loop, 3),
        passage_loop_features=unstandardised(model.passage_loop, 4),
    )
    torch.testing.assert_close(model(same), model(batch))
    for name in ("query_loop_features", "passage_loop_features"):
        moved = getattr(same, name).clone()
        moved[0] += 1  # a node's own loop: passages 2 and 3 do not receive messages from that node
        other = model(same._replace(**{name: moved}))
        assert not torch.allclose(other[0], model(same)[0])
        torch.testing.assert_close(other[2:], model(same)[2:])


def test_where_loop_features_are_stored_the_other_columns_stay_learned():
    model = randomised(GNNEncoder(4, 2))
    batch = random_batch(model)._replace(query_loop_features=torch.ones(3, 1), passage_loop_features=torch.ones(4, 1))
    model(batch).square().sum().backward()
    for learned in (model.query_loop, model.passage_loop):
        assert learned.grad[0] != 0
        assert learned.grad[1] == 0


def test_more_loop_features_than_edge_features_are_refused():
    model = GNNEncoder(4, 2)
    with pytest.raises(ValueError, match="3 features, but edges only 2"):
        model(random_batch(model)._replace(query_loop_features=torch.ones(3, 3)))


def test_float16_edge_features_as_stored_give_what_their_float32_copy_gives():
    model = randomised(GNNEncoder(4, 2))
    batch = random_batch(model)
    halved = batch._replace(
        query_edge_features=batch.query_edge_features.half(), passage_edge_features=batch.passage_edge_features.half()
    )
    copied = halved._replace(
        query_edge_features=halved.query_edge_features.float(),
        passage_edge_features=halved.passage_edge_features.float(),
    )
    torch.testing.assert_close(model(halved), model(copied))
