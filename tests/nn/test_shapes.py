"""The shapes of table 3: one layer, a constant gate, and dropout on the features that passages attend to."""

import numpy as np
import pytest
import torch

from gnnretrieval.nn import GNNEncoder, GNNEncoderSettings
from gnnretrieval.nn.constant_gate import ConstantGate
from gnnretrieval.training.gnn.graph_tensors import GraphTensors


@pytest.fixture
def batch(tiny_graph):
    return GraphTensors(tiny_graph).batch(np.arange(tiny_graph.num_passages))


def moved(tiny_graph, **shape) -> GNNEncoder:
    torch.manual_seed(0)
    model = GNNEncoder(tiny_graph.dimension, tiny_graph.edge_dim, GNNEncoderSettings(**shape))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def test_with_one_layer_a_query_is_what_the_encoder_gave_and_hears_no_passage(tiny_graph, batch):
    model = moved(tiny_graph, layers=1)
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"queries_to_passages", "filter_gate", "passage_loop"}
    interactive = model.interactive_queries(batch.queries, batch.sources, batch.to_queries, None)
    assert torch.equal(interactive, batch.queries)
    other = batch._replace(sources=torch.randn_like(batch.sources))
    assert torch.equal(model(batch), model(other))
    assert not torch.equal(model(batch), model(batch._replace(queries=torch.randn_like(batch.queries))))
    attention, own = model.query_attention(batch.queries, batch.sources, batch.to_queries, None)
    assert (attention == 0).all()
    assert (own == 1).all()


def test_a_constant_gate_lets_the_same_share_of_every_context_through(tiny_graph, batch):
    model = moved(tiny_graph, gate="constant", gate_start=0.25)
    assert not list(model.filter_gate.parameters())
    assert isinstance(model.filter_gate, ConstantGate)
    interactive = model.interactive_queries(batch.queries, batch.sources, batch.to_queries, batch.query_edge_features)
    context = model.passage_context(batch.passages, interactive, batch.to_passages, batch.passage_edge_features)
    torch.testing.assert_close(model(batch), batch.passages + 0.25 * context)
    assert (model.filter_gate.gate(context, batch.passages) == 0.25).all()


def test_feature_dropout_is_on_what_passages_hear_and_in_training_alone(tiny_graph, batch):
    model = moved(tiny_graph, feature_dropout=0.5)
    model.train()
    assert not torch.equal(model(batch), model(batch))
    alone = batch.to_passages.offsets.diff() == 0
    assert alone.any()
    torch.testing.assert_close(model(batch)[alone], model(batch)[alone])
    model.eval()
    assert torch.equal(model(batch), model(batch))
    assert torch.equal(model(batch), moved(tiny_graph).eval()(batch))
